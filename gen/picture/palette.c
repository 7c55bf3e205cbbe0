/*
 * palette.c: the colours of a picture: few by name, and ramps between the colours of a short list.
 */
#include "gen/picture/canvas.h"

#include <math.h>
#include <string.h>

static const uint8_t NAMED[FIRST_RAMP][3] = {
    [WHITE] = {255, 255, 255},     [BLACK] = {32, 32, 32},          [GREY] = {118, 118, 118},
    [PALE_GREY] = {232, 232, 232}, [BLUE] = {52, 101, 164},         [PALE_BLUE] = {196, 214, 236},
    [ORANGE] = {222, 126, 32},     [PALE_ORANGE] = {250, 222, 184}, [RED] = {190, 45, 45},
    [GREEN] = {52, 138, 88},       [PURPLE] = {124, 79, 160},       [BROWN] = {130, 92, 60},
};

enum { STOPS = 9 };
static const uint8_t RAMPS[][STOPS][3] = {
    [RAMP_SHARE] = {{244, 246, 250},
                    {214, 226, 241},
                    {184, 206, 232},
                    {154, 186, 222},
                    {126, 166, 211},
                    {100, 145, 199},
                    {76, 124, 185},
                    {54, 102, 166},
                    {36, 80, 142}},
    /* viridis, which is read as well without colours */
    [RAMP_HEAT] = {{68, 1, 84},
                   {71, 44, 122},
                   {59, 81, 139},
                   {44, 113, 142},
                   {33, 144, 141},
                   {39, 173, 129},
                   {92, 200, 99},
                   {170, 220, 50},
                   {253, 231, 37}},
    [RAMP_SIGNS] = {{33, 76, 150},
                    {77, 122, 187},
                    {134, 167, 214},
                    {193, 209, 234},
                    {247, 247, 247},
                    {243, 203, 188},
                    {226, 148, 125},
                    {199, 89, 75},
                    {160, 32, 42}},
};

uint8_t ramp_colour(enum ramp ramp, double part)
{
    const double at = fmin(fmax(part, 0), 1) * (RAMP_COLOURS - 1);
    return (uint8_t)(FIRST_RAMP + (int)ramp * RAMP_COLOURS + (int)lround(at));
}

static uint8_t between(const uint8_t stop[STOPS][3], int i, int channel)
{
    const double at = (double)i * (STOPS - 1) / (RAMP_COLOURS - 1);
    const int low = at < STOPS - 1 ? (int)at : STOPS - 2;
    return (uint8_t)lround(stop[low][channel] + (at - low) * (stop[low + 1][channel] - stop[low][channel]));
}

void palette_fill(uint8_t *rgb)
{
    memcpy(rgb, NAMED, sizeof NAMED);
    for (int ramp = 0; ramp < 3; ramp++)
        for (int i = 0; i < RAMP_COLOURS; i++)
            for (int channel = 0; channel < 3; channel++)
                rgb[(FIRST_RAMP + ramp * RAMP_COLOURS + i) * 3 + channel] = between(RAMPS[ramp], i, channel);
}
