#include "training/ranks/session_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/daemon_env/daemon_env.h"

namespace geminid::trainer {
namespace {

using collectives::FloatBlock;

constexpr size_t kElements = 1 << 20;
constexpr uint64_t kBytes = sizeof(float) * kElements;

class SessionMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start({.host_memory = "16MiB"}).ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 4 << 20;
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    before_ = *session_->HostBytes();
  }

  // The bytes that the daemon charges to the session beyond those at its start.
  uint64_t Charged() { return *session_->HostBytes() - before_; }
  static FloatBlock Take(SessionMemory& memory, size_t elements) {
    auto taken = FloatBlock::Allocate(memory, "a test", elements);
    EXPECT_TRUE(taken.ok()) << taken.status();
    return taken.ok() ? *std::move(taken) : FloatBlock();
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<Session> session_;
  uint64_t before_ = 0;
};

TEST_F(SessionMemoryTest, OfBlocks_IsChargedToTheSessionUntilItsEnd) {
  {
    SessionMemory memory(*session_);
    EXPECT_EQ(Charged(), 0u);
    const FloatBlock one = Take(memory, kElements);
    one.all().front() = one.all().back() = 1;  // the memory is writable
    EXPECT_EQ(Charged(), kBytes);
    const FloatBlock two = Take(memory, kElements);
    EXPECT_EQ(Charged(), 2 * kBytes);
  }
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(SessionMemoryTest, GivenBack_IsThereForTheNextOfUpToThatSize) {
  SessionMemory memory(*session_);
  float* const place = Take(memory, kElements).data();
  for (const size_t elements : {kElements, kElements / 2, size_t{1}}) {
    EXPECT_EQ(Take(memory, elements).data(), place);
  }
  EXPECT_EQ(Charged(), kBytes);
  // Blocks that are too small are freed before a new one is allocated.
  Take(memory, kElements * 3 / 2);
  EXPECT_EQ(Charged(), kBytes * 3 / 2);
}

TEST_F(SessionMemoryTest, BeyondTheHosts_IsRefusedWithWhatItWasFor) {
  SessionMemory memory(*session_);
  const auto refused = FloatBlock::Allocate(memory, "parcels of a pipeline", 5 * kElements);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::StartsWith("parcels of a pipeline (20"));
  EXPECT_EQ(Charged(), 0u);
}

}  // namespace
}  // namespace geminid::trainer
