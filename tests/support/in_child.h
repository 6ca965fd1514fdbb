// Work in a process of its own: some bugs crash theirs.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace starling {

struct Outcome {
  std::string text;
  int signal = 0;
};

// What `work` returns, run in a process of its own.
template <class Work>
Outcome in_child(Work&& work) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const std::string text = work();
    const bool written = write(ends[1], text.data(), text.size()) == ssize_t(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  Outcome outcome;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) outcome.text.append(buffer, size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

}  // namespace starling
