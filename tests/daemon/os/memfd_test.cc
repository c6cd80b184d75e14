#include "daemon/os/memfd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace geminid::os {
namespace {

constexpr uint64_t kBytes = 3 * 4096;

TEST(Memfd, Create_HasExactSizeModeAndSeals) {
  absl::StatusOr<base::UniqueFd> fd = CreateSealedMemfd("test", kBytes);
  ASSERT_TRUE(fd.ok()) << fd.status();
  struct stat facts;
  ASSERT_EQ(::fstat(fd->get(), &facts), 0);
  EXPECT_EQ(static_cast<uint64_t>(facts.st_size), kBytes);
  EXPECT_EQ(facts.st_mode & 0777u, 0600u);
  EXPECT_EQ(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  const int seals = ::fcntl(fd->get(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST(Memfd, Truncate_IsRefused) {
  absl::StatusOr<base::UniqueFd> fd = CreateSealedMemfd("test", kBytes);
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(::ftruncate(fd->get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd->get(), 2 * kBytes), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(Memfd, ReopenReadOnly_SeesWritesAndCannotWrite) {
  absl::StatusOr<base::UniqueFd> fd = CreateSealedMemfd("test", kBytes);
  ASSERT_TRUE(fd.ok());
  absl::StatusOr<base::UniqueFd> read_only = ReopenReadOnly(*fd);
  ASSERT_TRUE(read_only.ok()) << read_only.status();
  absl::StatusOr<Mapping> mapping = Mapping::Map(*fd, kBytes);
  ASSERT_TRUE(mapping.ok());
  mapping->data()[5] = std::byte{7};
  char seen = 0;
  ASSERT_EQ(::pread(read_only->get(), &seen, 1, 5), 1);
  EXPECT_EQ(seen, 7);
  EXPECT_FALSE(Mapping::Map(*read_only, kBytes).ok());
  void* view = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, read_only->get(), 0);
  ASSERT_NE(view, MAP_FAILED);
  EXPECT_NE(::mprotect(view, kBytes, PROT_READ | PROT_WRITE), 0);
  ::munmap(view, kBytes);
}

TEST(Mapping, Move_LeavesNothingBehind) {
  absl::StatusOr<base::UniqueFd> fd = CreateSealedMemfd("test", kBytes);
  ASSERT_TRUE(fd.ok());
  absl::StatusOr<Mapping> first = Mapping::Map(*fd, kBytes);
  ASSERT_TRUE(first.ok());
  std::byte* const data = first->data();
  Mapping second = *std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.bytes(), kBytes);
  Mapping third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
}

}  // namespace
}  // namespace geminid::os
