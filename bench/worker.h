// A benchmark process is a worker: it reads commands, one line each, from a pipe of its own and answers each
// with one line of JSON. It sleeps in read() between them, so the workers of several libraries can be alive
// together and be measured in turns without disturbing each other. python/starling/bench/workers.py is the
// other side.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace starling::bench {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "--name value" pairs.
class Arguments {
 public:
  Arguments(int count, char** texts) {
    for (int k = 1; k + 1 < count; k += 2) values_[texts[k]] = texts[k + 1];
    if (count % 2 == 0) throw std::runtime_error(std::string("no value after ") + texts[count - 1]);
  }
  std::string text(const std::string& name, const std::string& otherwise = "") const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  long number(const std::string& name, long otherwise = 0) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : std::stol(found->second);
  }

 private:
  std::map<std::string, std::string> values_;
};

// One command: a verb and "key=value" words.
struct Command {
  std::string verb;
  std::map<std::string, std::string> values;

  std::string text(const std::string& key) const {
    const auto found = values.find(key);
    if (found == values.end()) throw std::runtime_error("command " + verb + " lacks " + key);
    return found->second;
  }
  long number(const std::string& key) const { return std::stol(text(key)); }
};

class CommandPipes {
 public:
  CommandPipes(const std::string& folder, int rank) : rank_(rank) {
    commands_ = std::fopen((folder + "/commands." + std::to_string(rank)).c_str(), "r");
    replies_ = open((folder + "/replies").c_str(), O_WRONLY | O_CLOEXEC);
    if (commands_ == nullptr || replies_ < 0) throw std::runtime_error("no pipes in " + folder);
  }
  ~CommandPipes() {
    std::fclose(commands_);
    close(replies_);
  }
  CommandPipes(const CommandPipes&) = delete;
  CommandPipes& operator=(const CommandPipes&) = delete;

  // Nothing: the launcher said "quit" or is gone.
  std::optional<Command> next() {
    char line[4096];
    if (std::fgets(line, sizeof line, commands_) == nullptr) return std::nullopt;
    std::istringstream words(line);
    Command command;
    words >> command.verb;
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos) command.values[word.substr(0, equals)] = word.substr(equals + 1);
    }
    if (command.verb == "quit") return std::nullopt;
    return command;
  }

  // One write below PIPE_BUF, so the lines of several ranks do not mix. `json` is an object without its
  // braces.
  void reply(const std::string& json) {
    const std::string line = "{\"rank\": " + std::to_string(rank_) + ", " + json + "}\n";
    if (write(replies_, line.data(), line.size()) != ssize_t(line.size())) std::exit(1);
  }

 private:
  int rank_;
  FILE* commands_;
  int replies_;
};

inline std::string json_text(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text.substr(0, 3000)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' || c == '\t' ? ' ' : c;
  }
  return quoted + "\"";
}

inline std::string json_number(const std::string& name, double value) {
  char text[64];
  std::snprintf(text, sizeof text, "\"%s\": %.9g", name.c_str(), value);
  return text;
}

// Answers commands until there are none; an exception becomes the answer.
template <class Answer>
int serve(CommandPipes& pipes, Answer&& answer) {
  pipes.reply("\"ready\": true");
  while (const std::optional<Command> command = pipes.next()) {
    try {
      pipes.reply(answer(*command));
    } catch (const std::exception& error) {
      pipes.reply("\"error\": " + json_text(error.what()));
    }
  }
  return 0;
}

}  // namespace starling::bench
