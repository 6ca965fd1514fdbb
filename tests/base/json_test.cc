// Goal: JSON is read as its standard says, and what is none is refused with its line. Method: texts by hand.
// sanitize: address (one thread)
#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace starling {
namespace {

Json parsed(std::string_view text) { return Json::parse(text, "file"); }

TEST(Json, ReadsEveryKind) {
  const Json json = parsed(R"( {"a": [1, -2.5e1, true, false, null, {}, []], "b": "x"} )");
  ASSERT_NE(json.member("a"), nullptr);
  const Json::Array& items = *json.member("a")->array();
  ASSERT_EQ(items.size(), 7u);
  EXPECT_EQ(*items[0].number(), 1);
  EXPECT_EQ(*items[1].number(), -25);
  EXPECT_TRUE(*items[2].boolean());
  EXPECT_FALSE(*items[3].boolean());
  EXPECT_EQ(items[4].number(), nullptr);
  EXPECT_EQ(items[4].boolean(), nullptr);
  EXPECT_EQ(items[5].member("x"), nullptr);
  EXPECT_TRUE(items[6].array()->empty());
  EXPECT_EQ(*json.member("b")->string(), "x");
  EXPECT_EQ(json.member("c"), nullptr);
  EXPECT_EQ(items[0].member("a"), nullptr);
}

TEST(Json, ReadsEscapes) {
  EXPECT_EQ(*parsed(R"("\"\\\/\b\f\n\r\t")").string(), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(*parsed(R"("\u0041\u00e9\u20AC\ud83d\ude00")").string(), "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST(Json, RefusesWhatIsNone) {
  for (const char* text :
       {"",        "{",         "[1,",         "[1 2]",       "{\"a\"}",     "{\"a\": }", "{a: 1}", "tru",
        "nul",     "\"a",       "\"\n\"",      "1 2",         "[1,]",        "+1",        "inf",    "nan",
        "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\ud83d\"", "\"\\ude00\"", "{1: 2}"})
    EXPECT_THROW(parsed(text), Error) << text;
  EXPECT_THROW(parsed(std::string(100, '[')), Error);
  EXPECT_NO_THROW(parsed(std::string(60, '[') + std::string(60, ']')));
  try {
    parsed("{\n\"a\": 1,\n\"b\": ?}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("file, line 3"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace starling
