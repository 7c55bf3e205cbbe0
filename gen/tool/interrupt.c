/*
 * interrupt.c: a command that is ended by a signal cleans up first. In: a function that removes what the
 * command has made so far. It is called in a thread of its own, while the command still works; then the
 * process ends by that signal. interrupt_start and interrupt_stop pair up, and threads are started in
 * between.
 */
#include "gen/tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>
#include <sys/signalfd.h>

static void end_by(int number)
{
    sigset_t one;
    (void)signal(number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    (void)raise(number);
}

static void *watch(void *user)
{
    struct interrupt *i = user;
    struct pollfd ready[2] = {{.fd = i->signals, .events = POLLIN}, {.fd = i->stop[0], .events = POLLIN}};
    struct signalfd_siginfo what;
    while (poll(ready, 2, -1) < 0 && errno == EINTR)
        ;
    if (!(ready[0].revents & POLLIN) || read(i->signals, &what, sizeof what) != (ssize_t)sizeof what)
        return NULL;
    i->clean(i->user);
    end_by((int)what.ssi_signo);
    return NULL;
}

/* Those that end a command from outside, unless whoever started it (nohup) had them ignored. */
static void choose_signals(sigset_t *out)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction now;
    sigemptyset(out);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaddset(out, numbers[i]);
}

void interrupt_start(struct interrupt *i, void (*clean)(void *user), void *user)
{
    sigset_t set;
    *i = (struct interrupt){.clean = clean, .user = user, .signals = -1, .stop = {-1, -1}};
    choose_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, &i->before);
    i->signals = signalfd(-1, &set, SFD_CLOEXEC);
    i->running =
        i->signals >= 0 && pipe2(i->stop, O_CLOEXEC) == 0 && pthread_create(&i->thread, NULL, watch, i) == 0;
    if (!i->running) /* the next command for the same place cleans up */
        pthread_sigmask(SIG_SETMASK, &i->before, NULL);
}

void interrupt_stop(struct interrupt *i)
{
    if (i->running && write(i->stop[1], "", 1) == 1)
        pthread_join(i->thread, NULL);
    const int fds[3] = {i->signals, i->stop[0], i->stop[1]};
    for (int k = 0; k < 3; k++)
        if (fds[k] >= 0)
            close(fds[k]);
    if (i->running)
        pthread_sigmask(SIG_SETMASK, &i->before, NULL);
}
