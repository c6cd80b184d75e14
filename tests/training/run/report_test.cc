#include "training/run/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/base/temporary_folder.h"
#include "training/launch/sha256.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

TEST(Sha256, OfPieces_IsTheKnownDigestOfTheWhole) {
  Sha256 hash;
  const std::string text = "abc";
  for (const char& character : text) hash.Add(std::as_bytes(std::span(&character, 1)));
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(hash.Finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

Report TwoRanks() {
  Report report;
  report.options.model = *FindPreset("gpt2-tiny");
  report.options.schedule.steps = 3;
  report.parameters = 100;
  report.losses = {5.5, 0.1, 2.0};
  report.step_seconds = {9.0, 1.0, 3.0};
  report.tokens_per_step = 40;
  report.ranks.resize(2);
  report.ranks[0] = {.model_state_bytes = 600,
                     .host_bytes = 700,
                     .device_bytes_limit = 1000,
                     .peak_model_bytes = 10,
                     .peak_workspace_bytes = 30,
                     .peak_total_bytes = 35,
                     .host_to_device_bytes = 5,
                     .device_to_host_bytes = 6,
                     .transfer_bytes_lower_bound = 4,
                     .received_bytes = 7,
                     .received_within_host_bytes = 9,
                     .stall_seconds = 0.25};
  report.ranks[1] = report.ranks[0];
  report.ranks[1].peak_model_bytes = 20;
  report.ranks[1].stall_seconds = 0.5;
  report.stall_seconds_by_cause = {{"copy", 0.25}};
  report.replans_by_cause = {{"slower", 3}};
  report.traffic = {{.axis = TrafficAxis::kTable,
                     .operation = collectives::OpKind::kAllReduce,
                     .calls = 41,
                     .bytes_sent = 2048,
                     .bytes_received = 43,
                     .network_bytes = 45,
                     .partners = 44,
                     .seconds = 0.125}};
  report.plan_explanation = "all \"fits\"";
  report.weights_sha256 = "00";
  report.flops_per_token = 100;
  report.native_data_type = false;
  report.instruction_set = "avx2";
  report.non_finite_losses = 1;
  report.first_non_finite_step = 2;
  report.ended_by = "SIGINT";
  return report;
}

TEST(ToJson, OfTwoRanks_AddsWhatAddsAndTakesTheMostOfPeaks) {
  const std::string json = ToJson(TwoRanks());
  for (const char* field : {"\"schema_version\": 1",
                            "\"parameters\": 100",
                            "\"world_size\": 2",
                            "\"model_state_bytes\": 1200",
                            "\"host_bytes\": 1400",
                            "\"host_bytes_per_parameter\": 14",
                            "\"device_bytes_limit\": 1000",
                            "\"model\": 20",
                            "\"non_model\": 30",
                            "\"total\": 35",
                            "\"h2d_bytes\": 10",
                            "\"d2h_bytes\": 12",
                            "\"transfer_bytes_lower_bound\": 8",
                            "\"received_bytes\": 14",
                            "\"received_within_host_bytes\": 18",
                            "\"zero_within_host\": false",
                            "\"zero_stage\": 3",
                            "\"axis\": \"tied table\"",
                            "\"operation\": \"AllReduce\"",
                            "\"calls\": 41",
                            "\"bytes_sent\": 2048",
                            "\"bytes_received\": 43",
                            "\"network_bytes_received\": 45",
                            "\"partners\": 44",
                            "\"seconds\": 0.125",
                            "\"stall_seconds\": 0.5",
                            "\"copy\": 0.25",
                            "\"slower\": 3",
                            "\"everything_fits\": false",
                            "\"plan_explanation\": \"all \\\"fits\\\"\"",
                            "\"weights_sha256\": \"00\"",
                            "\"flops_per_second\": 2000",
                            "\"dtype_is_native\": false",
                            "\"instruction_set\": \"avx2\"",
                            "\"non_finite_losses\": 1",
                            "\"first_non_finite_step\": 2",
                            "\"steps_done\": 3",
                            "\"ended_by\": \"SIGINT\"",
                            "\"tokens_per_second\": 20",
                            "\"placement\": \"auto\"",
                            "\"dtype\": \"bf16\"",
                            "\"0x1.999999999999ap-4\"",
                            "\"geminid\": \""}) {
    EXPECT_THAT(json, HasSubstr(field));
  }
}

TEST(ToJson, OfARunInEpochs_SaysHowManyAreDoneAndOfAnotherNothing) {
  Report report = TwoRanks();
  EXPECT_THAT(ToJson(report), HasSubstr("\"epochs_done\": null"));
  EXPECT_EQ(EpochsDone(report), std::nullopt);
  report.options.model.context = 8;  // 5 sequences a step
  report.samples_per_epoch = 10;
  report.options.sampling = Sampling::kShuffle;
  report.first_step = 2;
  EXPECT_EQ(EpochsDone(report), 2.5);
  const std::string json = ToJson(report);
  for (const char* field :
       {"\"sampling\": \"shuffle\"", "\"samples_per_epoch\": 10", "\"epochs_done\": 2.5"}) {
    EXPECT_THAT(json, HasSubstr(field));
  }
}

TEST(ToJson, OfWhatWasSaid_HasEachLine) {
  Report report = TwoRanks();
  EXPECT_THAT(ToJson(report), HasSubstr("\"notes\": []"));
  report.notes = {"--save-every 9: it does nothing"};
  EXPECT_THAT(ToJson(report), HasSubstr("--save-every 9: it does nothing"));
  EXPECT_THAT(EvaluationJson(report), HasSubstr("--save-every 9: it does nothing"));
}

TEST(EvaluationJson, WithoutALoss_HasNullInItsPlace) {
  Report report = TwoRanks();
  EXPECT_THAT(EvaluationJson(report), HasSubstr("\"validation_loss\": null"));
  report.validation = {{.step = 0, .loss = 0.5}};
  const std::string json = EvaluationJson(report);
  for (const char* field : {"\"validation_loss\": 0.5", "\"validation_loss_hex\": \"0x1p-1\"",
                            "\"perplexity\": 1.648", "\"seconds\": 3"}) {
    EXPECT_THAT(json, HasSubstr(field));
  }
  EXPECT_THAT(json, testing::Not(HasSubstr("learning_rate")));
}

TEST(TrafficTable, OfARow_HasItsNumbersBelowTheirNames) {
  EXPECT_EQ(TrafficTable(TwoRanks().traffic),
            "axis        operation         calls        sent    received     network  partners   "
            "seconds\n"
            "tied table  AllReduce            41     2.0 KiB        43 B        45 B        44     "
            "0.125");
}

TEST(TokensPerSecond, LeavesOutTheFirstStep_UnlessItIsTheOnlyOne) {
  Report report = TwoRanks();
  EXPECT_DOUBLE_EQ(TokensPerSecond(report), 80.0 / 4.0);
  report.step_seconds = {2.0};
  EXPECT_DOUBLE_EQ(TokensPerSecond(report), 20.0);
}

}  // namespace
}  // namespace geminid::trainer
