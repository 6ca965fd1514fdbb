// Goal: groups, lists and components are the ones the paper describes, and bad settings are refused by name.
// Method: known shapes are built and counted; every rule of a setting is broken once.
// sanitize: address (one thread)
#include "study/model.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace starling::study {
namespace {

Setting three_d(ThreeD shape) {
  Setting setting;
  setting.gpus = shape.tensor * shape.data * shape.pipeline;
  setting.groups = three_d_groups(shape);
  return setting;
}

TEST(Model, three_d_groups_have_the_papers_numbers) {
  EXPECT_EQ(three_d_groups({4, 4, 4, 400, 1200}).size(), 32u);
  EXPECT_EQ(three_d_groups({8, 6, 64, 400, 1200}).size(), 896u);
  const std::vector<Group> groups = three_d_groups({4, 2, 4, 1, 2});  // Fig. 3
  EXPECT_EQ(groups[0].gpus, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(groups[1].gpus, (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(groups[2].gpus, (std::vector{0, 4}));
  EXPECT_EQ(groups[6].gpus, (std::vector{8, 9, 10, 11}));
  EXPECT_EQ(groups[6].collectives, 1);
  EXPECT_EQ(groups[2].collectives, 2);
}

TEST(Model, stages_share_one_component) {
  const Model model(three_d({8, 6, 64, 400, 1200}));
  EXPECT_EQ(model.components().size(), 1u);
  EXPECT_EQ(model.placements().size(), 64u);
  EXPECT_EQ(model.placements()[2].gpus.front(), 96);
  EXPECT_EQ(model.launches(), 3072 * 1600);
}

TEST(Model, lists_interleave_or_concatenate) {
  Setting setting = three_d({2, 2, 1, 2, 3});
  const auto collectives = [](const Model& model) {
    std::vector<int> list;
    for (int place = 0; place < 5; ++place) list.push_back(model.components()[0].collective_at(0, place));
    return list;
  };
  EXPECT_EQ(collectives(Model(setting)), (std::vector{0, 4, 1, 5, 6}));
  setting.order = Order::concatenated;
  EXPECT_EQ(collectives(Model(setting)), (std::vector{0, 1, 4, 5, 6}));
}

void expect_refused(const Setting& setting, const std::string& key) {
  try {
    Model model(setting);
    FAIL() << "accepted, though " << key << " is wrong";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.happened().find(key), std::string::npos) << error.happened();
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST(Model, refuses_bad_settings_by_name) {
  const Setting good = three_d({2, 2, 1, 2, 3});
  Setting bad = good;
  bad.disorder_probability = 1.5;
  expect_refused(bad, "disorder_probability");
  bad = good;
  bad.synchronization_probability = 1;
  expect_refused(bad, "synchronization_probability");
  bad = good;
  bad.gpus = 5;
  expect_refused(bad, "GPU 4 is in no group");
  bad = good;
  bad.groups[1].gpus[0] = 9;
  expect_refused(bad, "groups[1].gpus");
  bad = good;
  bad.groups[1].gpus = {2, 2};
  expect_refused(bad, "twice");
  bad = good;
  bad.groups[3].collectives = 0;
  expect_refused(bad, "groups[3].collectives");
  bad = good;
  bad.groups.clear();
  expect_refused(bad, "groups is empty");
}

}  // namespace
}  // namespace starling::study
