#include "daemon/service/calls/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::Bytes;
using ::geminid::testing::GoodHello;
using ::testing::HasSubstr;

TEST(Hello, Good_BecomesASpec) {
  shm::Hello hello = GoodHello();
  hello.rank = 1;
  hello.local_rank = 1;
  hello.world_size = 4;
  hello.local_world_size = 2;
  hello.device = shm::DeviceIndex{1};
  hello.death_policy = shm::DeathPolicy::kKeep;
  std::strcpy(hello.run, "run-7");
  absl::StatusOr<core::SessionSpec> spec = CheckHello(Bytes(hello));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->job, "demo");
  EXPECT_EQ(spec->run, "run-7");
  EXPECT_EQ(spec->rank, 1);
  EXPECT_EQ(spec->world_size, 4);
  EXPECT_EQ(spec->local_world_size, 2);
  EXPECT_EQ(spec->device, shm::DeviceIndex{1});
  EXPECT_EQ(spec->death_policy, shm::DeathPolicy::kKeep);
  EXPECT_EQ(spec->client, "raw client 1");
}

TEST(Hello, OtherVersion_NamesBoth) {
  shm::Hello hello = GoodHello();
  hello.protocol_version = 77;
  const absl::Status status = CheckHello(Bytes(hello)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("protocol version 3, the client version 77"));
}

TEST(Hello, OtherVersionOfAnotherSize_NamesBoth) {
  const std::array<uint32_t, 3> future = {shm::kHelloMagic, 77, 99};
  EXPECT_EQ(CheckHello(Bytes(future)).status().code(), absl::StatusCode::kFailedPrecondition);
}

// The next release also speaks this release's version.
TEST(Hello, OfTheNextRelease_IsUnderstoodWhereItSpeaksThisVersion) {
  shm::Hello hello = GoodHello();
  hello.protocol_version = shm::kProtocolVersion + 1;
  hello.oldest_protocol_version = shm::kProtocolVersion;
  hello.layout_version = shm::kLayoutVersion + 1;
  hello.oldest_layout_version = shm::kLayoutVersion;
  const absl::StatusOr<core::SessionSpec> spec = CheckHello(Bytes(hello));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->job, "demo");
  EXPECT_TRUE(CheckHello(Bytes(hello), sizeof(hello) + 100).ok()) << "it may be longer";
  hello.oldest_protocol_version = shm::kProtocolVersion + 1;
  EXPECT_THAT(std::string(CheckHello(Bytes(hello)).status().message()),
              HasSubstr("protocol version 3, the client version 4;"));
  hello.protocol_version = 9;
  EXPECT_THAT(std::string(CheckHello(Bytes(hello)).status().message()),
              HasSubstr("protocol version 3, the client versions 4 to 9;"));
  hello.oldest_protocol_version = shm::kProtocolVersion;
  hello.oldest_layout_version = shm::kLayoutVersion + 1;
  EXPECT_THAT(std::string(CheckHello(Bytes(hello)).status().message()),
              HasSubstr("shared-memory layout 3, the client layout 4;"));
}

TEST(Hello, OfThisVersionAndAnotherSize_IsRefused) {
  const shm::Hello hello = GoodHello();
  EXPECT_EQ(CheckHello(Bytes(hello), sizeof(hello) + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The first release's hello has a shape of its own.
TEST(Hello, OfVersionOne_IsRefusedWithBothVersions) {
  std::array<std::byte, 160> old = {};
  const std::array<uint32_t, 3> prefix = {shm::kHelloMagic, 1, 1};
  std::memcpy(old.data(), prefix.data(), sizeof(prefix));
  const absl::Status status = CheckHello(old).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("protocol version 3, the client version 1; install the same release"));
}

TEST(Hello, OtherLayout_NamesBoth) {
  shm::Hello hello = GoodHello();
  hello.layout_version = 9;
  EXPECT_THAT(std::string(CheckHello(Bytes(hello)).status().message()),
              HasSubstr("layout 3, the client layout 9"));
}

TEST(Hello, LayoutOfTheNarrowArenas_IsRefusedWithAdvice) {
  shm::Hello hello = GoodHello();
  hello.layout_version = 1;
  const absl::Status status = CheckHello(Bytes(hello)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("layout 3, the client layout 1; install the same release of both"));
}

TEST(Hello, BadFields_AreRefused) {
  const std::vector<std::function<void(shm::Hello*)>> mistakes = {
      [](shm::Hello* hello) { hello->magic = 1; },
      [](shm::Hello* hello) { hello->death_policy = static_cast<shm::DeathPolicy>(2); },
      [](shm::Hello* hello) { hello->rank = -1; },
      [](shm::Hello* hello) { hello->rank = 1; },
      [](shm::Hello* hello) { hello->local_rank = -1; },
      [](shm::Hello* hello) { hello->local_rank = 1; },
      [](shm::Hello* hello) { hello->local_world_size = -1; },
      [](shm::Hello* hello) { hello->local_world_size = 2; },
      [](shm::Hello* hello) {
        hello->world_size = 4;
        hello->local_rank = 2;
        hello->local_world_size = 2;
      },
      [](shm::Hello* hello) { hello->world_size = 0; },
      [](shm::Hello* hello) { hello->world_size = kMaxWorldSize + 1; },
      [](shm::Hello* hello) { hello->job[0] = '\0'; },
      [](shm::Hello* hello) { std::strcpy(hello->job, "Upper"); },
      [](shm::Hello* hello) { std::strcpy(hello->job, "a b"); },
      [](shm::Hello* hello) { std::memset(hello->job, 'a', sizeof(hello->job)); },
      [](shm::Hello* hello) { std::memset(hello->client, 'a', sizeof(hello->client)); },
  };
  for (size_t i = 0; i < mistakes.size(); ++i) {
    shm::Hello hello = GoodHello();
    mistakes[i](&hello);
    EXPECT_EQ(CheckHello(Bytes(hello)).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST(Hello, LimitsThemselves_AreAccepted) {
  shm::Hello hello = GoodHello();
  hello.world_size = kMaxWorldSize;
  hello.rank = kMaxWorldSize - 1;
  std::memset(hello.job, 'a', sizeof(hello.job) - 1);
  EXPECT_TRUE(CheckHello(Bytes(hello)).ok());
}

TEST(Hello, ClientName_IsMadePrintable) {
  shm::Hello hello = GoodHello();
  std::strcpy(hello.client, "evil\n\x1b[2Jname");
  absl::StatusOr<core::SessionSpec> spec = CheckHello(Bytes(hello));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->client, "evil??[2Jname");
}

TEST(Hello, EveryShorterMessage_IsRefused) {
  const shm::Hello hello = GoodHello();
  for (size_t size = 0; size < sizeof(hello); ++size) {
    EXPECT_FALSE(CheckHello(Bytes(hello).first(size)).ok()) << size;
  }
}

TEST(Hello, RandomBytes_NeverCrash) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    shm::Hello hello = GoodHello();
    auto* bytes = reinterpret_cast<unsigned char*>(&hello);
    for (int k = 0; k < 4; ++k) bytes[random() % sizeof(hello)] = static_cast<uint8_t>(random());
    absl::StatusOr<core::SessionSpec> spec =
        CheckHello(Bytes(hello).first(random() % (sizeof(hello) + 1)));
    if (spec.ok()) {
      EXPECT_LT(spec->rank, spec->world_size);
    }
  }
}

}  // namespace
}  // namespace geminid::service
