// Where a caller's time goes, on machines without a profiler: preloaded into a program, it interrupts the main thread
// of each process that this one forks every CALLER_SAMPLES_US microseconds (211), and writes down where that stands.
// Below some 100 a sleep never ends: begun again after each interruption, it is given the timer's slack of 50 anew.
//
//   LD_PRELOAD=caller_samples.so CALLER_SAMPLES=folder/prefix gpu.collective_bench as=processes ...
//
// Each child writes prefix.PID: its executable mappings as text, then samples of 16 words: the program counter, and
// words of its stack, from the top, that lie in one of these mappings (return addresses, and what is left of older
// ones). `python bench/gpu/caller_samples.py prefix.PID...` says which functions these are.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { kWords = 16, kSamples = 1 << 18, kStackWords = 700, kMappings = 256, kTextBytes = 1 << 18 };

struct Mapping {
  uintptr_t begin, end;
};

static struct Mapping mappings[kMappings];
static int mapping_count;
static char* text;  // of the file: kTextBytes, then samples
static uint64_t* samples;
static volatile uint32_t taken;
static uintptr_t stack_end;

static int is_code(uintptr_t word) {
  for (int k = 0; k < mapping_count; ++k)
    if (word >= mappings[k].begin && word < mappings[k].end) return 1;
  return 0;
}

// Libraries are loaded late (the driver, NCCL): looked up again whenever many more samples are there.
static void read_mappings(void) {
  const int file = open("/proc/self/maps", O_RDONLY);
  if (file < 0) return;
  static char all[1 << 20];
  size_t length = 0;
  for (ssize_t got; length + 1 < sizeof all && (got = read(file, all + length, sizeof all - 1 - length)) > 0;)
    length += (size_t)got;
  close(file);
  all[length] = 0;
  mapping_count = 0;
  char* to = text;
  for (char* line = all; *line != 0;) {
    char* end = strchr(line, '\n');
    if (end == NULL) break;
    char* next = NULL;
    const uintptr_t begin = strtoull(line, &next, 16), last = strtoull(next + 1, &next, 16);
    if (next[3] == 'x' && mapping_count < kMappings) {
      mappings[mapping_count++] = (struct Mapping){begin, last};
      const size_t bytes = (size_t)(end - line) + 1;
      if (to + bytes < text + kTextBytes) {
        memcpy(to, line, bytes);
        to += bytes;
      }
    }
    if (strncmp(end - 7, "[stack]", 7) == 0) stack_end = last;
    line = end + 1;
  }
}

static void on_signal(int number, siginfo_t* info, void* context) {
  (void)number;
  (void)info;
  if (taken >= kSamples) return;
  if (taken % 4096 == 0) read_mappings();
  const ucontext_t* at = context;
  uint64_t* sample = samples + (uint64_t)taken * kWords;
  const uintptr_t* stack = (const uintptr_t*)at->uc_mcontext.gregs[REG_RSP];
  sample[0] = (uint64_t)at->uc_mcontext.gregs[REG_RIP];
  int found = 1;
  for (int k = 0; k < kStackWords && found < kWords && (uintptr_t)(stack + k + 1) <= stack_end; ++k)
    if (is_code(stack[k])) sample[found++] = stack[k];
  taken = taken + 1;
}

static void begin_in_child(void) {
  const char* prefix = getenv("CALLER_SAMPLES");
  const char* period = getenv("CALLER_SAMPLES_US");
  if (prefix == NULL) return;
  char name[512];
  snprintf(name, sizeof name, "%s.%d", prefix, (int)getpid());
  const int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  const size_t bytes = kTextBytes + (size_t)kSamples * kWords * sizeof(uint64_t);
  if (file < 0 || ftruncate(file, (off_t)bytes) != 0) return;
  text = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (text == MAP_FAILED) return;
  samples = (uint64_t*)(text + kTextBytes);
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGPROF, &action, NULL);
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  timer_t timer;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return;
  const long every = (period != NULL ? atol(period) : 211) * 1000;
  const struct itimerspec when = {{0, every}, {0, every}};
  timer_settime(timer, 0, &when, NULL);
}

__attribute__((constructor)) static void prepare(void) { pthread_atfork(NULL, NULL, begin_in_child); }
