# embed.cmake: writes the templates and specs into one C file, so that the library needs no data files.
#
#     cmake -DROOT=<source folder> -DNAMES=templates/common/base.cuh,specs/causal.lua -DOUT=embedded_files.c \
#         -P embed.cmake
#
# The C file defines `embedded_files` of gen.h, one row a file in the order given, ending with a NULL name.
# Every file is followed by a zero byte that is not counted, so its data is a C string too.

string(REPLACE "," ";" names "${NAMES}")
set(arrays "")
set(rows "")
set(number 0)
string(REPEAT "." 80 line) # of bytes: sixteen
foreach(name IN LISTS names)
    file(READ "${ROOT}/${name}" hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
    string(LENGTH "${hex}" digits)
    math(EXPR size "${digits} / 2")
    string(APPEND arrays "static const unsigned char file_${number}[] = {\n${bytes}0x00};\n\n")
    string(APPEND rows "    {\"${name}\", (const char *)file_${number}, ${size}},\n")
    math(EXPR number "${number} + 1")
endforeach()
string(CONCAT text "/* Written by gen/base/embed.cmake from the files it names. */\n#include \"gen/gen.h\"\n\n"
    "${arrays}const struct embedded embedded_files[] = {\n${rows}    {NULL, NULL, 0},\n};\n")
file(WRITE "${OUT}" "${text}")
