// Two host devices in one node: ranks train on one each as they would on one, and the books of both
// are kept apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "geminid/session.h"
#include "tests/base/json_values.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/tools/trainer/command.h"
#include "tools/geminictl/program/run.h"

namespace geminid {
namespace {

using base::At;
using base::JsonValue;
using base::MustParse;
using base::Number;
using base::Texts;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// The report of two ranks that train on a daemon with these devices.
JsonValue Train(const std::string& devices, const std::vector<std::string>& more = {}) {
  testing::DaemonEnv env;
  EXPECT_TRUE(env.Start({.device = devices}).ok());
  const base::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i % 10) + " of the text. ";
  const std::string report = folder / "report.json";
  std::vector<std::string> arguments = {"--text",
                                        folder.Write("text", text),
                                        "--model",
                                        "gpt2-tiny",
                                        "--steps",
                                        "4",
                                        "--batch",
                                        "4",
                                        "--ranks",
                                        "2",
                                        "--lr",
                                        "3e-3",
                                        "--device-memory",
                                        "4MiB",
                                        "--report",
                                        report,
                                        "--socket",
                                        env.socket()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const trainer::CommandResult result = trainer::RunTrainer(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  std::stringstream written;
  written << std::ifstream(report).rdbuf();
  return MustParse(written.str());
}

TEST(Devices, TwoRanksOnOneDeviceEach_TrainBitForBitAsOnOne) {
  const JsonValue two = Train("host:0=4MiB,host:1=4MiB");
  const JsonValue one = Train("host:0=8MiB");
  EXPECT_EQ(Texts(At(two, "device_per_rank")), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(Texts(At(one, "device_per_rank")), (std::vector<std::string>{"0", "0"}));
  EXPECT_EQ(At(two, "weights_sha256").text, At(one, "weights_sha256").text);
  EXPECT_EQ(Texts(At(two, "loss_hex")), Texts(At(one, "loss_hex")));
  EXPECT_EQ(At(two, "loss_hex").items.size(), 4u);
}

TEST(Devices, DeviceByFlagOrVariable_HoldsForEveryRank) {
  const JsonValue report = Train("host:0=4MiB,host:1=8MiB", {"--device", "1"});
  EXPECT_EQ(Texts(At(report, "device_per_rank")), (std::vector<std::string>{"1", "1"}));
}

class TwoDevices : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start({.device = "host:0=8MiB,host:1=8MiB"}).ok()); }

  absl::StatusOr<std::unique_ptr<Session>> Connect(int rank, uint64_t arena_bytes) {
    ConnectOptions options;
    options.socket = env_.socket();
    options.job = "pair";
    options.rank = options.local_rank = rank;
    options.world_size = options.local_world_size = 4;
    options.device_memory_bytes = arena_bytes;
    return Session::Connect(options);
  }

  JsonValue Status() {
    std::ostringstream out;
    std::ostringstream err;
    ctl::Environment environment;
    environment.out = &out;
    environment.err = &err;
    environment.variables = [](const std::string&) { return std::nullopt; };
    EXPECT_EQ(ctl::RunGeminictl({"status", "--json", "--socket", env_.socket()}, environment), 0)
        << err.str();
    return MustParse(out.str());
  }

  testing::DaemonEnv env_;
};

TEST_F(TwoDevices, Status_ShowsTheBytesOfBothAndTheyAddUp) {
  const absl::StatusOr<std::unique_ptr<Session>> first = Connect(0, 2 * kMiB);
  const absl::StatusOr<std::unique_ptr<Session>> second = Connect(1, 3 * kMiB);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  const auto chunk = (*second)->Allocate({{"one", ChunkKind::kGeneric, kMiB, true}});
  ASSERT_TRUE(chunk.ok());
  const absl::StatusOr<Lease> lease = (*second)->Use(chunk->front().id);
  ASSERT_TRUE(lease.ok()) << lease.status();

  const JsonValue status = Status();
  std::vector<uint64_t> in_use;
  std::vector<uint64_t> reserved;
  for (const JsonValue& row : At(At(status, "ledger"), "tiers").items) {
    EXPECT_EQ(
        Number(row, "in_use_bytes") + Number(row, "reserved_bytes") + Number(row, "free_bytes"),
        Number(row, "capacity_bytes"));
    if (At(row, "tier").text != "device") {
      EXPECT_EQ(At(row, "device").type, JsonValue::Type::kNull);
      continue;
    }
    EXPECT_EQ(Number(row, "device"), in_use.size());
    in_use.push_back(Number(row, "in_use_bytes"));
    reserved.push_back(Number(row, "reserved_bytes"));
  }
  EXPECT_EQ(in_use, (std::vector<uint64_t>{0, kMiB}));
  EXPECT_EQ(reserved, (std::vector<uint64_t>{2 * kMiB, 2 * kMiB}));
  ASSERT_EQ(At(status, "devices").items.size(), 2u);
  EXPECT_EQ(At(At(status, "devices").items[1], "uuid").text, (*second)->device_description().uuid);
}

TEST_F(TwoDevices, FullDevice_IsNamedWhileTheOtherStillServes) {
  const absl::StatusOr<std::unique_ptr<Session>> filling = Connect(0, 8 * kMiB);
  ASSERT_TRUE(filling.ok()) << filling.status();
  const absl::Status refused = Connect(2, kMiB).status();  // local rank 2: device 0 again
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("device 0: asked for 1.0 MiB"),
                                                    HasSubstr("job pair rank 0 (8.0 MiB)")));
  EXPECT_TRUE(Connect(1, kMiB).ok());
}

}  // namespace
}  // namespace geminid
