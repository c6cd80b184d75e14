#include "daemon/memory/host_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pages.h"

namespace geminid::memory {
namespace {

TEST(HostArena, SparseArenaLargerThanTheMachine_HasSlabsWithoutPages) {
  const uint64_t bytes = uint64_t{2} << 40;
  PoolOptions options;
  options.name = "test";
  options.bytes = bytes;
  options.backing = PageBacking::kSparse;
  absl::StatusOr<std::unique_ptr<HostArena>> arena = HostArena::Create(options, os::ReadMachine());
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->slabs().size(), kMaxSlabs);
  uint64_t sum = 0;
  for (const DeviceArena::Slab& slab : (*arena)->slabs()) {
    struct stat file = {};
    ASSERT_EQ(fstat(slab.fd->get(), &file), 0);
    EXPECT_EQ(static_cast<uint64_t>(file.st_size), slab.bytes);
    EXPECT_EQ(file.st_blocks, 0);
    sum += slab.bytes;
  }
  EXPECT_EQ(sum, bytes);
}

TEST(HostArena, PopulatedArenaLargerThanTheMachine_IsRefused) {
  PoolOptions options;
  options.name = "test";
  options.bytes = uint64_t{1} << 46;
  EXPECT_TRUE(absl::IsResourceExhausted(HostArena::Create(options, os::ReadMachine()).status()));
}

TEST(HostArena, Create_MakesTheSlabs) {
  PoolOptions options;
  options.name = "test";
  options.bytes = 5 * base::kPageBytes;
  absl::StatusOr<std::unique_ptr<HostArena>> arena = HostArena::Create(options, os::ReadMachine());
  ASSERT_TRUE(arena.ok()) << arena.status();
  ASSERT_EQ((*arena)->slabs().size(), 1u);
  EXPECT_EQ((*arena)->slabs()[0].bytes, 5 * base::kPageBytes);
}

TEST(HostArena, Revoke_GivesEverySlabBackAtOnceWhoeverLives) {
  PoolOptions options;
  options.name = "test";
  options.bytes = 5 * base::kPageBytes;
  absl::StatusOr<std::unique_ptr<HostArena>> arena = HostArena::Create(options, os::ReadMachine());
  ASSERT_TRUE(arena.ok()) << arena.status();
  int calls = 0;
  (*arena)->Revoke(base::UniqueFd(::dup(STDIN_FILENO)), [&calls](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    ++calls;
  });
  EXPECT_EQ(calls, 1);
  struct stat file = {};
  ASSERT_EQ(fstat((*arena)->slabs()[0].fd->get(), &file), 0);
  EXPECT_EQ(file.st_size, 0);
}

}  // namespace
}  // namespace geminid::memory
