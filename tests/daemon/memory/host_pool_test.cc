#include "daemon/memory/host_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/mapping.h"
#include "base/pages.h"

namespace geminid::memory {
namespace {

using ::testing::HasSubstr;

PoolOptions Options(uint64_t bytes) {
  PoolOptions options;
  options.name = "test-pool";
  options.bytes = bytes;
  return options;
}

TEST(HostPool, Create_IsExactSealedBackedAndZero) {
  const uint64_t bytes =
      33 * (uint64_t{1} << 20) + 3 * base::kPageBytes;  // no round number of pieces
  absl::StatusOr<HostPool> pool = HostPool::Create(Options(bytes), os::ReadMachine());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->bytes(), bytes);
  struct stat facts;
  ASSERT_EQ(::fstat(pool->fd().get(), &facts), 0);
  EXPECT_EQ(static_cast<uint64_t>(facts.st_size), bytes);
  // Backed to the last page, and no page more.
  EXPECT_EQ(static_cast<uint64_t>(facts.st_blocks) * 512, bytes);
  EXPECT_EQ(::fcntl(pool->fd().get(), F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW),
            F_SEAL_SHRINK | F_SEAL_GROW);
  absl::StatusOr<base::Mapping> mapping = base::Mapping::Map(pool->fd(), bytes);
  ASSERT_TRUE(mapping.ok());
  uint64_t sum = 0;
  for (uint64_t i = 0; i < bytes; ++i) sum += std::to_integer<uint64_t>(mapping->data()[i]);
  EXPECT_EQ(sum, 0u);
}

TEST(HostPool, Create_OfPartOfAPage_IsRefused) {
  EXPECT_EQ(HostPool::Create(Options(100), os::ReadMachine()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HostPool::Create(Options(0), os::ReadMachine()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HostPool, Create_OfMoreThanTheMachineHas_IsRefusedWithNumbers) {
  const uint64_t bytes = uint64_t{1} << 46;
  const absl::Status status = HostPool::Create(Options(bytes), os::ReadMachine()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 64.0 TiB"));
}

TEST(HostPool, Create_Cancelled_EndsEarly) {
  const std::atomic<bool> cancelled{true};
  PoolOptions options = Options(uint64_t{64} << 20);
  options.cancelled = &cancelled;
  EXPECT_EQ(HostPool::Create(options, os::ReadMachine()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(HostPool, FitsHugePages_WholePagesAndEnoughOfThem) {
  os::HugePages pages;
  pages.page_bytes = uint64_t{2} << 20;
  pages.free_pages = 3;
  EXPECT_TRUE(FitsHugePages(uint64_t{6} << 20, pages));
  EXPECT_FALSE(FitsHugePages(uint64_t{8} << 20, pages));
  EXPECT_FALSE(FitsHugePages((uint64_t{2} << 20) + base::kPageBytes, pages));
  EXPECT_FALSE(FitsHugePages(uint64_t{2} << 20, os::HugePages()));
}

TEST(HostPool, Create_HugePagesPromisedButGone_FallsBack) {
  os::Machine machine = os::ReadMachine();
  // More than are free now, as if another program had taken them since they were counted.
  machine.huge_pages.page_bytes = uint64_t{2} << 20;
  machine.huge_pages.free_pages = uint64_t{1} << 20;
  PoolOptions options = Options(uint64_t{4} << 20);
  options.huge_pages = true;
  absl::StatusOr<HostPool> pool = HostPool::Create(options, machine);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->bytes(), options.bytes);
}

}  // namespace
}  // namespace geminid::memory
