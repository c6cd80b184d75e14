#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"

namespace geminid::base {
namespace {

constexpr uint64_t kBytes = 3 * kPageBytes;
constexpr uint64_t kTebibyte = uint64_t{1} << 40;
using Access = MappingOptions::Access;

UniqueFd Memory(uint64_t bytes = kBytes) {
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd("test", bytes);
  EXPECT_TRUE(fd.ok()) << fd.status();
  return *std::move(fd);
}

bool IsMapped(const std::byte* page) {
  unsigned char residency = 0;
  return ::mincore(const_cast<std::byte*>(page), kPageBytes, &residency) == 0;
}

TEST(Memfd, Create_HasExactSizeModeAndSeals) {
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd("test", kBytes);
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
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd("test", kBytes);
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(::ftruncate(fd->get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd->get(), 2 * kBytes), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(Memfd, ReopenReadOnly_SeesWritesAndCannotWrite) {
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd("test", kBytes);
  ASSERT_TRUE(fd.ok());
  absl::StatusOr<UniqueFd> read_only = ReopenReadOnly(*fd);
  ASSERT_TRUE(read_only.ok()) << read_only.status();
  absl::StatusOr<Mapping> mapping = Mapping::Map(*fd, kBytes);
  ASSERT_TRUE(mapping.ok());
  mapping->data()[5] = std::byte{7};
  char seen = 0;
  ASSERT_EQ(::pread(read_only->get(), &seen, 1, 5), 1);
  EXPECT_EQ(seen, 7);
  EXPECT_FALSE(Mapping::Map(*read_only, kBytes).ok());
}

TEST(Memfd, CheckSealed_RefusesWhatIsOrCouldBecomeTooSmall) {
  EXPECT_TRUE(CheckSealed(Memory(), kBytes).ok());
  EXPECT_EQ(CheckSealed(Memory(), kBytes + 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckSealed(Memory(), 0).code(), absl::StatusCode::kInvalidArgument);
  const UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  EXPECT_EQ(CheckSealed(unsealed, kBytes).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(CheckSealed(UniqueFd(), kBytes).ok());
}

TEST(Memfd, Revoked_HoldsNoPageAndNobodyCanBringOneBack) {
  absl::StatusOr<UniqueFd> fd = CreateRevocableMemfd("test", kBytes);
  ASSERT_TRUE(fd.ok()) << fd.status();
  absl::StatusOr<Mapping> mapping =
      Mapping::Map(*fd, kBytes, {.inherited = true, .revocable = true});
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  mapping->data()[0] = std::byte{1};
  const UniqueFd other(::open(absl::StrCat("/proc/self/fd/", fd->get()).c_str(), O_RDWR));
  ASSERT_EQ(Revoke(*fd), absl::OkStatus());
  for (const int end : {fd->get(), other.get()}) {
    EXPECT_EQ(::ftruncate(end, kBytes), -1);
    EXPECT_EQ(::pwrite(end, "x", 1, 0), -1);
    EXPECT_NE(::posix_fallocate(end, 0, kBytes), 0);
  }
  EXPECT_EXIT({ *const_cast<volatile std::byte*>(mapping->data()) = std::byte{1}; },
              ::testing::KilledBySignal(SIGBUS), "");
  struct stat facts;
  ASSERT_EQ(::fstat(fd->get(), &facts), 0);
  EXPECT_EQ(facts.st_blocks, 0);
}

TEST(Memfd, CheckRevocable_WantsTheSizeAndThatItCannotGrow) {
  absl::StatusOr<UniqueFd> fd = CreateRevocableMemfd("test", kBytes);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_TRUE(CheckRevocable(*fd, kBytes).ok());
  EXPECT_EQ(CheckRevocable(*fd, kBytes + 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckSealed(*fd, kBytes).code(), absl::StatusCode::kInvalidArgument);
  const UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  EXPECT_EQ(CheckRevocable(unsealed, kBytes).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Memfd, Written_IsReadAndNeverWrittenAgain) {
  const std::string text = "a plan" + std::string(100'000, 'x');
  const absl::StatusOr<UniqueFd> fd = CreateWrittenMemfd("test", text);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const absl::StatusOr<std::string> read = ReadMemfd(*fd, text.size());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == text);
  EXPECT_EQ(ReadMemfd(*fd, text.size() - 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(::pwrite(fd->get(), "y", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd->get(), 0), -1);
  EXPECT_FALSE(Mapping::Map(*fd, text.size()).ok()) << "mapped writable";
  EXPECT_TRUE(Mapping::Map(*fd, text.size(), {.access = Access::kRead}).ok());
  EXPECT_TRUE(CheckSealed(*fd, text.size()).ok());
}

TEST(Mapping, Moved_LeavesNothingBehind) {
  absl::StatusOr<Mapping> first = Mapping::Map(Memory(), kBytes);
  ASSERT_TRUE(first.ok());
  std::byte* const data = first->data();
  Mapping second = *std::move(first);
  EXPECT_EQ(first->data(), nullptr);
  EXPECT_EQ(first->bytes(), 0u);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.bytes(), kBytes);
  Mapping third;
  third = std::move(second);
  EXPECT_EQ(second.data(), nullptr);  // NOLINT(clang-analyzer-cplusplus.Move): that is asked
  EXPECT_EQ(third.data(), data);
  EXPECT_TRUE(IsMapped(data));
  third = Mapping();
  EXPECT_FALSE(IsMapped(data));
}

TEST(Mapping, OfAClosedDescriptor_KeepsItsMemory) {
  UniqueFd fd = Memory();
  const UniqueFd other(::dup(fd.get()));
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd, kBytes);
  ASSERT_TRUE(mapping.ok());
  fd.Reset();
  mapping->data()[kBytes - 1] = std::byte{9};
  char seen = 0;
  ASSERT_EQ(::pread(other.get(), &seen, 1, kBytes - 1), 1);
  EXPECT_EQ(seen, 9);
}

TEST(Mapping, OfAMovedDescriptor_IsRefusedAndThatOfItsNewOwnerWorks) {
  UniqueFd fd = Memory();
  const UniqueFd owner = std::move(fd);
  EXPECT_EQ(Mapping::Map(fd, kBytes).status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(Mapping::Map(owner, kBytes).ok());
}

TEST(Mapping, ThatTheSystemRefuses_IsAStatusAndNoException) {
  const UniqueFd fd = Memory();
  EXPECT_EQ(Mapping::Map(fd, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Mapping::Map(fd, kTebibyte << 10).status().code(),
            absl::StatusCode::kResourceExhausted);
  absl::StatusOr<UniqueFd> read_only = ReopenReadOnly(fd);
  ASSERT_TRUE(read_only.ok());
  EXPECT_EQ(Mapping::Map(*read_only, kBytes).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(Mapping, ForReading_SeesWritesAndCannotWrite) {
  const UniqueFd fd = Memory();
  absl::StatusOr<Mapping> writer = Mapping::Map(fd, kBytes);
  absl::StatusOr<UniqueFd> read_only = ReopenReadOnly(fd);
  ASSERT_TRUE(writer.ok() && read_only.ok());
  absl::StatusOr<Mapping> reader =
      Mapping::Map(*read_only, kBytes, {.access = Access::kRead, .populate = true});
  ASSERT_TRUE(reader.ok()) << reader.status();
  writer->data()[7] = std::byte{3};
  EXPECT_EQ(reader->data()[7], std::byte{3});
  EXPECT_NE(::mprotect(reader->data(), kBytes, PROT_READ | PROT_WRITE), 0);
}

TEST(Mapping, OfAForeignFile_IsRefusedUnlessSealed) {
  const UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  EXPECT_TRUE(Mapping::Map(unsealed, kBytes).ok());
  EXPECT_EQ(Mapping::Map(unsealed, kBytes, {.foreign = true}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Mapping::Map(Memory(), kBytes, {.foreign = true}).ok());
}

TEST(Mapping, InAForkedChild_IsThereOnlyIfInherited) {
  absl::StatusOr<Mapping> own = Mapping::Map(Memory(), kBytes);
  absl::StatusOr<Mapping> shared = Mapping::Map(Memory(), kBytes, {.inherited = true});
  ASSERT_TRUE(own.ok() && shared.ok());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(!IsMapped(own->data()) && IsMapped(shared->data()) ? 0 : 1);
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Reservation, Slabs_LieSideBySideAndGoTogether) {
  const UniqueFd low = Memory(kPageBytes);
  const UniqueFd high = Memory(2 * kPageBytes);
  absl::StatusOr<Reservation> made = Reservation::Make(4 * kPageBytes);
  ASSERT_TRUE(made.ok()) << made.status();
  auto reserved = std::make_unique<Reservation>(*std::move(made));
  ASSERT_TRUE(reserved->MapAt(0, low, kPageBytes).ok());
  ASSERT_TRUE(reserved->MapAt(kPageBytes, high, 2 * kPageBytes, {.populate = true}).ok());
  std::byte* const data = reserved->data();
  data[kPageBytes - 1] = std::byte{1};
  data[kPageBytes] = std::byte{2};
  char seen[2] = {};
  EXPECT_EQ(::pread(low.get(), &seen[0], 1, kPageBytes - 1), 1);
  EXPECT_EQ(::pread(high.get(), &seen[1], 1, 0), 1);
  EXPECT_EQ(seen[0], 1);
  EXPECT_EQ(seen[1], 2);
  reserved.reset();
  for (int page = 0; page < 4; ++page) EXPECT_FALSE(IsMapped(data + page * kPageBytes)) << page;
}

TEST(Reservation, WhatIsShared_IsTheSameMemoryUntilItIsUnmapped) {
  const UniqueFd slab = Memory(2 * kPageBytes);
  absl::StatusOr<Reservation> reserved = Reservation::Make(2 * kPageBytes);
  absl::StatusOr<Reservation> other = Reservation::Make(4 * kPageBytes);
  ASSERT_TRUE(reserved.ok() && other.ok());
  ASSERT_TRUE(reserved->MapAt(0, slab, 2 * kPageBytes).ok());
  for (const uint64_t from : {uint64_t{0}, kPageBytes}) {
    ASSERT_TRUE(other->ShareAt(2 * kPageBytes, *reserved, from, kPageBytes).ok());
    other->data()[2 * kPageBytes] = std::byte{7};
    EXPECT_EQ(reserved->data()[from], std::byte{7});
  }
  EXPECT_EQ(reserved->data()[0], std::byte{7}) << "it is still there";
  EXPECT_FALSE(other->ShareAt(4 * kPageBytes, *reserved, 0, kPageBytes).ok());
  EXPECT_FALSE(other->ShareAt(0, *reserved, kPageBytes, 2 * kPageBytes).ok());
  EXPECT_FALSE(other->ShareAt(0, *reserved, kPageBytes / 2, kPageBytes).ok());
  ASSERT_TRUE(other->Unmap(2 * kPageBytes, kPageBytes).ok());
  EXPECT_TRUE(IsMapped(other->data() + 2 * kPageBytes)) << "reserved";
}

TEST(Reservation, WhereNothingIsMapped_CannotBeRead) {
  const auto read = [] {
    absl::StatusOr<Reservation> reserved = Reservation::Make(2 * kPageBytes);
    if (!reserved.ok()) ::_exit(0);
    volatile std::byte* const data = reserved->data();
    (void)data[kPageBytes];
    ::_exit(0);
  };
  EXPECT_DEATH(read(), "");
}

TEST(Reservation, OfTebibytes_TakesNoMemory) {
  const UniqueFd slab = Memory(kPageBytes);
  absl::StatusOr<Reservation> reserved = Reservation::Make(2 * kTebibyte);
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  EXPECT_EQ(reserved->bytes(), 2 * kTebibyte);
  ASSERT_TRUE(reserved->MapAt(2 * kTebibyte - kPageBytes, slab, kPageBytes).ok());
  reserved->data()[2 * kTebibyte - 1] = std::byte{1};
}

TEST(Reservation, MapAtOutsideOrBetweenPages_IsRefused) {
  const UniqueFd slab = Memory();
  absl::StatusOr<Reservation> reserved = Reservation::Make(4 * kPageBytes);
  ASSERT_TRUE(reserved.ok());
  constexpr uint64_t kHuge = ~uint64_t{0} & ~(kPageBytes - 1);
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{2 * kPageBytes, kBytes},
                                      {kPageBytes / 2, kPageBytes},
                                      {0, kPageBytes / 2},
                                      {0, 0},
                                      {5 * kPageBytes, kPageBytes},
                                      {kPageBytes, kHuge},
                                      {kHuge, kPageBytes}}) {
    EXPECT_EQ(reserved->MapAt(offset, slab, bytes).code(), absl::StatusCode::kInvalidArgument)
        << bytes << " at " << offset;
  }
  EXPECT_FALSE(Reservation::Make(0).ok());
  EXPECT_FALSE(Reservation::Make(kPageBytes + 1).ok());
  EXPECT_EQ(Reservation::Make(kTebibyte << 10).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace geminid::base
