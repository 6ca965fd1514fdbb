// Goal: settings are read right, refused with a remedy, and a misspelled name is answered with the nearest
// one. Method: read_settings is pure, so entries are passed in as text; every row of the table is checked
// alike.
// sanitize: address (one thread)
#include "base/env.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace starling {
namespace {

Settings read(std::vector<const char*> entries) { return read_settings(entries).settings; }

std::string refusal(const char* entry) {
  try {
    read({entry});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Settings, DefaultsWithoutEnvironment) {
  const Settings settings = read({});
  EXPECT_EQ(settings.log_level, LogLevel::warn);
  EXPECT_DOUBLE_EQ(settings.timeout_s, 1800.0);
  EXPECT_EQ(settings.blocks, 0);
}

TEST(Settings, EachTypeIsParsed) {
  const Settings settings = read({"STARLING_LOG=debug", "STARLING_TIMEOUT_S=2.5", "STARLING_BLOCKS=4",
                                  "STARLING_POOL_BYTES=12k", "STARLING_ARENA_BYTES=2G", "PATH=/bin"});
  EXPECT_EQ(settings.log_level, LogLevel::debug);
  EXPECT_DOUBLE_EQ(settings.timeout_s, 2.5);
  EXPECT_EQ(settings.blocks, 4);
  EXPECT_EQ(settings.pool_bytes, 12 << 10);
  EXPECT_EQ(settings.arena_bytes, std::int64_t{2} << 30);
}

TEST(Settings, PullHasThreeValues) {
  EXPECT_EQ(read({}).pull, Pull::kAuto);
  EXPECT_EQ(read({"STARLING_PULL=auto"}).pull, Pull::kAuto);
  EXPECT_EQ(read({"STARLING_PULL=0"}).pull, Pull::kNever);
  EXPECT_EQ(read({"STARLING_PULL=1"}).pull, Pull::kAlways);
  EXPECT_NE(refusal("STARLING_PULL=2").find("auto, 0 or 1"), std::string::npos);
}

TEST(Settings, AGuardWaitsForTheDaemon) {
  EXPECT_EQ(read({}).guard, Guard::kWatch);
  EXPECT_EQ(read({"STARLING_GUARD=on"}).guard, Guard::kBlock);
  EXPECT_EQ(read({"STARLING_GUARD=0"}).guard, Guard::kAll);
  EXPECT_EQ(read({"STARLING_GUARD=watch"}).guard, Guard::kWatch);
  EXPECT_NE(refusal("STARLING_GUARD=2").find("0, 1 or watch"), std::string::npos);
}

TEST(Settings, AStreamIsHeldInOneOfThreeWays) {
  EXPECT_EQ(read({}).stream_hold, StreamHold::kGate);
  EXPECT_EQ(read({"STARLING_STREAM_HOLD=wait"}).stream_hold, StreamHold::kWait);
  EXPECT_EQ(read({"STARLING_STREAM_HOLD=doorbell"}).stream_hold, StreamHold::kDoorbell);
  EXPECT_NE(refusal("STARLING_STREAM_HOLD=1").find("gate, wait or doorbell"), std::string::npos);
}

TEST(Settings, BadValuesAreRefusedByNameWithARemedy) {
  for (const char* entry :
       {"STARLING_LOG=loud", "STARLING_TIMEOUT_S=soon", "STARLING_TIMEOUT_S=nan", "STARLING_TIMEOUT_S=inf",
        "STARLING_TIMEOUT_S=1e10", "STARLING_BLOCKS=4294967297", "STARLING_WINDOW=1025",
        "STARLING_TIMEOUT_S=-1", "STARLING_BLOCKS=-1", "STARLING_BLOCKS=2x", "STARLING_BLOCKS=",
        "STARLING_POOL_BYTES=-1", "STARLING_POOL_BYTES=k", "STARLING_POOL_BYTES=99999999999999g",
        "STARLING_ARENA_BYTES=1k", "STARLING_PULL=2", "STARLING_PULL=", "STARLING_PULL=yes"}) {
    const std::string text = refusal(entry);
    const std::string name = std::string(entry).substr(0, std::string_view(entry).find('='));
    EXPECT_NE(text.find(name), std::string::npos) << entry << " gave: " << text;
    EXPECT_NE(text.find("remedy"), std::string::npos) << entry << " gave: " << text;
  }
}

TEST(Settings, UnknownNamesGetTheNearestKnownOne) {
  const std::vector<const char*> entries = {"STARLING_TIMEOUTS=5", "STARLINGS=1", "HOME=/"};
  const SettingsReading reading = read_settings(entries);
  ASSERT_EQ(reading.warnings.size(), 1u);
  EXPECT_NE(reading.warnings[0].find("STARLING_TIMEOUTS"), std::string::npos);
  EXPECT_NE(reading.warnings[0].find("did you mean STARLING_TIMEOUT_S?"), std::string::npos);
}

TEST(Settings, TheTableIsCompleteAndItsDefaultsAreValid) {
  std::set<std::string_view> names;
  const std::string markdown = settings_markdown();
  for (const SettingRow& row : settings_table()) {
    EXPECT_TRUE(row.name.starts_with("STARLING_")) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands twice";
    EXPECT_GT(row.help.size(), 10u) << row.name;
    EXPECT_NE(markdown.find("| `" + std::string(row.name) + "` |"), std::string::npos) << markdown;
    const std::string entry = std::string(row.name) + "=" + std::string(row.default_text);
    EXPECT_NO_THROW(read({entry.c_str()})) << entry;
  }
}

}  // namespace
}  // namespace starling
