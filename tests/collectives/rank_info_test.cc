#include "geminid/rank_info.h"

#include <gtest/gtest.h>

#include <map>

#include "geminid/connect.h"

namespace geminid::collectives {
namespace {

absl::StatusOr<RankInfo> From(const std::map<std::string, std::string>& variables) {
  return RankInfoFrom([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// The message of the error.
std::string Refusal(const std::map<std::string, std::string>& variables) {
  auto info = From(variables);
  EXPECT_FALSE(info.ok());
  EXPECT_EQ(info.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(info.status().message());
}

TEST(RankInfo, NothingSet_IsOneProcess) {
  auto info = From({});
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->rank, 0);
  EXPECT_EQ(info->world_size, 1);
  EXPECT_EQ(info->local_rank, 0);
  EXPECT_EQ(info->local_world_size, 1);
  EXPECT_TRUE(info->OnOneHost());
}

TEST(RankInfo, Torchrun_IsRead) {
  auto info = From({{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"LOCAL_WORLD_SIZE", "4"},
                    {"MASTER_ADDR", "node7"},
                    {"MASTER_PORT", "1234"},
                    {"TORCHELASTIC_RUN_ID", "run"},
                    {"SLURM_PROCID", "1"},
                    {"SLURM_NTASKS", "2"}});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->rank, 5);
  EXPECT_EQ(info->world_size, 8);
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->local_world_size, 4);
  EXPECT_EQ(info->master_address, "node7");
  EXPECT_EQ(info->master_port, 1234);
  EXPECT_EQ(info->job, "run");
  EXPECT_FALSE(info->OnOneHost());
}

TEST(RankInfo, OpenMpiAndMpichAndSlurm_AreRead) {
  auto ompi = From({{"OMPI_COMM_WORLD_RANK", "3"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ASSERT_TRUE(ompi.ok()) << ompi.status();
  EXPECT_EQ(ompi->rank, 3);
  EXPECT_TRUE(ompi->OnOneHost());
  auto pmi = From({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  ASSERT_TRUE(pmi.ok()) << pmi.status();
  EXPECT_EQ(pmi->rank, 1);
  EXPECT_EQ(pmi->world_size, 2);
  EXPECT_EQ(pmi->local_world_size, 0);
  EXPECT_FALSE(pmi->OnOneHost());
  auto slurm = From({{"SLURM_PROCID", "2"},
                     {"SLURM_NTASKS", "3"},
                     {"SLURM_LOCALID", "2"},
                     {"SLURM_STEP_NUM_NODES", "1"},
                     {"SLURM_JOB_ID", "77"},
                     {"SLURM_STEP_ID", "0"}});
  ASSERT_TRUE(slurm.ok()) << slurm.status();
  EXPECT_EQ(slurm->rank, 2);
  EXPECT_EQ(slurm->local_rank, 2);
  EXPECT_EQ(slurm->job, "77");
  EXPECT_TRUE(slurm->OnOneHost());
}

// The cases are the shell of salloc, the script of sbatch, and a shell that salloc makes a step of
// its own (LaunchParameters=use_interactive_step).
TEST(RankInfo, InAnAllocationOfSlurmWithoutSrun_IsOneProcess) {
  auto salloc = From({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}});
  ASSERT_TRUE(salloc.ok()) << salloc.status();
  EXPECT_EQ(salloc->world_size, 1);
  EXPECT_EQ(salloc->job, "");
  std::map<std::string, std::string> script = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  for (const char* step : {"", "4294967290", "4294967291"}) {
    script["SLURM_STEP_ID"] = step;
    auto alone = From(script);
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(alone->world_size, 1) << step;
  }
  script["SLURM_STEP_ID"] = "4294967289";
  EXPECT_EQ(From(script)->world_size, 4);
}

TEST(RankInfo, LoopbackMaster_MeansOneHost) {
  auto info = From({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_TRUE(info->OnOneHost());
  EXPECT_EQ(info->master_port, 29500);
}

TEST(RankInfo, OwnPort_ReplacesTheLaunchers) {
  auto info = From({{"MASTER_PORT", "1000"}, {"GEMINID_MASTER_PORT", "2000"}});
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->master_port, 2000);
}

TEST(RankInfo, AgentStoreOfTorchrun_MovesThePortByOne) {
  auto info = From({{"MASTER_PORT", "1000"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->master_port, 1001);
  EXPECT_NE(Refusal({{"MASTER_PORT", "65535"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}})
                .find("GEMINID_MASTER_PORT"),
            std::string::npos);
}

TEST(RankInfo, HalfSet_NamesTheMissingVariable) {
  EXPECT_EQ(Refusal({{"RANK", "0"}}), "RANK is set but WORLD_SIZE is not; a launcher sets both");
  EXPECT_EQ(Refusal({{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE is set but RANK is not; a launcher sets both");
}

TEST(RankInfo, NotANumber_IsRefused) {
  for (const char* bad : {"-1", "+1", " 1", "1 ", "0x1", "1.0", "one", "99999999999999999999"}) {
    EXPECT_NE(Refusal({{"RANK", bad}, {"WORLD_SIZE", "2"}}).find("RANK=\""), std::string::npos)
        << bad;
  }
  Refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}});
  Refusal({{"MASTER_PORT", "0"}});
  Refusal({{"MASTER_PORT", "65536"}});
  Refusal({{"GEMINID_MASTER_PORT", "port"}});
}

TEST(RankInfo, Contradictions_AreRefused) {
  EXPECT_EQ(Refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK=2 contradicts WORLD_SIZE=2");
  EXPECT_EQ(Refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}}),
            "LOCAL_WORLD_SIZE=3 contradicts WORLD_SIZE=2");
  EXPECT_EQ(
      Refusal({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}),
      "LOCAL_RANK=2 contradicts LOCAL_WORLD_SIZE=2");
  EXPECT_EQ(Refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}),
            "LOCAL_RANK=2 contradicts WORLD_SIZE=2");
}

TEST(Connect, WithATimeoutThatIsNotAboveZero_IsRefusedByName) {
  ConnectOptions options;
  options.timeout = -absl::Seconds(2);
  EXPECT_EQ(Connect({}, options).status(),
            absl::InvalidArgumentError("timeout is -2s; it must be above 0"));
  options = {};
  options.connect_timeout = absl::ZeroDuration();
  EXPECT_EQ(Connect({}, options).status(),
            absl::InvalidArgumentError("connect_timeout is 0; it must be above 0"));
}

}  // namespace
}  // namespace geminid::collectives
