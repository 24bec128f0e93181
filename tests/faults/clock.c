/* A clock on the wall that is off by as many seconds as the file $CLOCK_OFFSET says; the others are the machine's. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (failed || clock != CLOCK_REALTIME)
        return failed;
    FILE *file = fopen(getenv("CLOCK_OFFSET"), "r");
    long offset = 0;
    if (file) {
        if (fscanf(file, "%ld", &offset) != 1)
            offset = 0;
        fclose(file);
    }
    now->tv_sec += offset;
    return 0;
}
