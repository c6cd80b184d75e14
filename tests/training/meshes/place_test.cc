#include "training/meshes/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_replace.h"
#include "training/forecast/catalogue.h"
#include "training/meshes/placed_choice.h"

namespace geminid::parallel {
namespace {

using testing::HasSubstr;

PlacedRun FourRanks() {
  return {.place = {.ranks = 4,
                    .hosts = 2,
                    .device_bytes = std::uint64_t{4} << 30,
                    .host_bytes = std::uint64_t{64} << 30,
                    .operations_per_second = 1e11,
                    .copied_bytes_per_second = 1e10,
                    .link_bytes_per_second = 2e10,
                    .peer_bytes_per_second = 3e9,
                    .peer_message_seconds = 1e-5,
                    .network_bytes_per_second = 1e8,
                    .network_message_seconds = 0.0001},
          .element_bytes = 4,
          .sequences = 16,
          .sequence_length = 64,
          .least_micro_batches = 2,
          .optimizer = "adamw",
          .activations = "recomputed",
          .meshes = {"data=4", "pipeline=2,data=2"}};
}

std::string Json(const PlacedRun& run) {
  base::JsonWriter json;
  WritePlacedRun(json, run);
  return json.text();
}

std::string Error(const std::string& json) {
  return std::string(ReadPlacedRun(json).status().message());
}

TEST(ReadPlacedRun, OfWhatWasWritten_IsTheSame) {
  const auto alone = ReadPlacedRun(Json(FourRanks()));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(*alone, FourRanks());
  const auto in_report = ReadPlacedRun("{\"loss\": [1], \"place\": " + Json(FourRanks()) + "}");
  ASSERT_TRUE(in_report.ok()) << in_report.status();
  EXPECT_EQ(*in_report, FourRanks());
}

TEST(ReadPlacedRun, OfSomethingElse_SaysWhatIsMissingAndWhatToGive) {
  const std::string good = Json(FourRanks());
  EXPECT_THAT(Error("{\"loss\": []}"),
              testing::AllOf(HasSubstr("it has no \"ranks\""), HasSubstr("--parallel auto")));
  EXPECT_THAT(Error("no JSON"), HasSubstr("line 1: "));
  EXPECT_THAT(Error(absl::StrReplaceAll(good, {{"\"ranks\": 4", "\"ranks\": 5"}})),
              HasSubstr("5 ranks on 2 hosts"));
  EXPECT_THAT(Error(absl::StrReplaceAll(good, {{"\"sequences\": 16", "\"sequences\": -1"}})),
              HasSubstr("\"sequences\" is -1"));
  EXPECT_THAT(Error(absl::StrReplaceAll(good, {{"\"adamw\"", "3"}})),
              HasSubstr("another kind of \"optimizer\""));
}

TEST(ChooseFor, ARun_TakesOfItsMeshesInMicroBatchesNoLargerThanAsked) {
  const auto choice = ChooseFor(*forecast::FindModel("gpt2"), FourRanks());
  ASSERT_TRUE(choice.ok()) << choice.status();
  ASSERT_FALSE(choice->planned.empty());
  for (const PlannedMesh& planned : choice->planned) {
    EXPECT_THAT(FourRanks().meshes, testing::Contains(ToString(planned.setting.mesh)));
    EXPECT_GE(planned.setting.micro_batches, 2u);
    EXPECT_EQ(planned.setting.activations, forecast::Activations::kRecompute);
  }
}

}  // namespace
}  // namespace geminid::parallel
