#include "training/meshes/pipeline_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace geminid::parallel {
namespace {

using collectives::PipelineKind;
using testing::HasSubstr;

constexpr int kMost = 64;

TEST(ReadPipeline, OfASchedule_HasItsStagesAndChunks) {
  struct Case {
    std::string value;
    PipelineKind kind;
    int stages, chunks;
  };
  for (const Case& one : std::vector<Case>{
           {"4", PipelineKind::k1F1B, 4, 1},
           {"1f1b:4", PipelineKind::k1F1B, 4, 1},
           {"interleaved:4:chunks=3", PipelineKind::kInterleaved, 4, 3},
           {"zbv:4", PipelineKind::kZeroBubbleV, 4, 2},
       }) {
    const auto axis = ReadPipeline(one.value, kMost);
    ASSERT_TRUE(axis.ok()) << axis.status();
    EXPECT_EQ(axis->kind, one.kind) << one.value;
    EXPECT_EQ(axis->stages, one.stages) << one.value;
    EXPECT_EQ(axis->chunks, one.chunks) << one.value;
  }
}

TEST(ReadPipeline, OfAMistake_SaysWhichAndWhatWouldBeRight) {
  for (const auto& [value, words] : std::vector<std::pair<std::string, std::string>>{
           {"gpipe:2", "no schedule 'gpipe'; the schedules are 1f1b, interleaved and zbv"},
           {"two", "pipeline two: it must be"},
           {"65", "pipeline 65: it must be"},
           {"1f1b:2:chunks=2", "it takes the number of stages alone, as in pipeline=2"},
           {"zbv:2:chunks=2", "it takes the number of stages alone"},
           {"interleaved:2", "needs stages and chunks, as in pipeline=interleaved:2:chunks=2"},
           {"interleaved:2:2", "pipeline has no '2'"},
           {"interleaved:2:parts=2", "pipeline has no 'parts=2'"},
           {"interleaved:2:chunks=x", "pipeline's chunks x: it must be"},
           {"interleaved:2:chunks=1", "at least 2 chunks for each stage"},
           {"", "pipeline '': it must be"}}) {
    const auto axis = ReadPipeline(value, kMost);
    ASSERT_TRUE(absl::IsInvalidArgument(axis.status())) << value;
    EXPECT_THAT(std::string(axis.status().message()), HasSubstr(words)) << value;
  }
}

}  // namespace
}  // namespace geminid::parallel
