// Goal: a plan for equal parts never meets a table of counts, and all_to_all in place takes tables only where
// what is received fits where what is sent lay. Method: shapes with and without tables, a plan whose facts
// say that it is for equal parts only.
#include "comm/lowering.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "plan/generate.h"
#include "plan/text.h"

namespace starling {
namespace {

// Right for equal parts only: rank 1 passes on, at its own length, what rank 2 sends.
constexpr const char* kEqualOnly = R"(starling-plan 1
name equal_only
collective gather
ranks 3
root 0
in_place 0
chunks_per_group 1
groups 1 3
rank 0 scratch 0
block 0
0 copy input[0] -> output[0] size output[0]
1 recv <1.0 -> output[1] size output[1]
2 recv <1.0 -> output[2] size output[2]
rank 1 scratch 0
block 0
0 send input[0] -> >0.0 size input[0]
1 recv_send <2.0 -> >0.0 size input[0]
rank 2 scratch 0
block 0
0 send input[0] -> >1.0 size input[0]
)";

TEST(Lowering, RefusesAPlanForEqualPartsWhereThereAreCounts) {
  const Plan equal_only = plan_from_text(kEqualOnly);
  ASSERT_TRUE(equal_only.header(0)->uniform_only);
  const Plan any = generate("direct", {Collective::kGather, 3});
  const std::array<size_t, 3> counts = {1, 2, 3};
  Shape equal{.collective = Collective::kGather};
  Shape unequal = equal;
  unequal.output.counts = counts.data();
  EXPECT_NO_THROW(check_parts(equal_only, equal));
  EXPECT_NO_THROW(check_parts(any, unequal));
  try {
    check_parts(equal_only, unequal);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(std::string(error.what()).find("plan equal_only of gather is right for equal parts only"),
              std::string::npos)
        << error.what();
    EXPECT_NE(error.remedy().find("leave the counts out"), std::string::npos) << error.remedy();
  }
}

TEST(Lowering, TakesAllToAllInPlaceWithEqualTablesOnly) {
  PlanCache plans;
  const LoweringContext context{0, 2, 1, &plans};
  float buffer[16];
  const std::array<size_t, 2> counts = {3, 5}, offsets = {0, 3}, shifted = {1, 4}, swapped = {5, 3};
  starling_operation call{};
  call.struct_bytes = sizeof call;
  call.kind = STARLING_ALL_TO_ALL;
  call.data_type = STARLING_FLOAT32;
  call.input = call.output = buffer;
  call.input_counts = call.output_counts = counts.data();
  EXPECT_NO_THROW(lower(context, call));
  call.input_offsets = offsets.data();  // says what none means
  EXPECT_NO_THROW(lower(context, call));
  call.input_offsets = shifted.data();
  EXPECT_THROW(lower(context, call), Error);
  call.input_offsets = nullptr;
  call.output_counts = swapped.data();
  EXPECT_THROW(lower(context, call), Error);
  float other[16];
  call.output = other;
  EXPECT_NO_THROW(lower(context, call));
}

}  // namespace
}  // namespace starling
