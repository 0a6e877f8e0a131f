/* Moves the wall clock of the process that has this loaded (LD_PRELOAD): by as many seconds as the file that SHEAVE_TEST_CLOCK names
 * holds, as a native int64_t. All other clocks are the kernel's. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void follow_offset(void) {
  const char *path = getenv("SHEAVE_TEST_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) offset = mapped;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  long outcome = syscall(SYS_clock_gettime, clock, time);
  if (outcome == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += *offset;
  return (int)outcome;
}
