/* Preloaded into a server: its wall clock is off by the milliseconds in the file that CLOCK_OFFSET_FILE names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset_ms(void) {
  const char *path = getenv("CLOCK_OFFSET_FILE");
  char text[32] = {0};
  int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) : -1;
  if (file < 0) return 0;
  syscall(SYS_read, file, text, sizeof text - 1);
  syscall(SYS_close, file);
  return strtol(text, NULL, 10);
}

static void shifted(struct timespec *time) {
  syscall(SYS_clock_gettime, CLOCK_REALTIME, time);
  long ms = offset_ms();
  time->tv_sec += ms / 1000;
  time->tv_nsec += ms % 1000 * 1000000L;
  if (time->tv_nsec >= 1000000000L) { time->tv_sec += 1; time->tv_nsec -= 1000000000L; }
  if (time->tv_nsec < 0) { time->tv_sec -= 1; time->tv_nsec += 1000000000L; }
}

int clock_gettime(clockid_t id, struct timespec *time) {
  if (id != CLOCK_REALTIME) return (int)syscall(SYS_clock_gettime, id, time);
  shifted(time);
  return 0;
}

int gettimeofday(struct timeval *restrict value, void *restrict zone) {
  struct timespec time;
  (void)zone;
  shifted(&time);
  value->tv_sec = time.tv_sec;
  value->tv_usec = time.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec now;
  shifted(&now);
  if (seconds) *seconds = now.tv_sec;
  return now.tv_sec;
}
