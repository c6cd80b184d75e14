#include "client/disk/file_io.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "base/unique_fd.h"
#include "tests/base/temporary_folder.h"
#include "tests/client/disk/blocks.h"

namespace geminid::disk {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDepth = 16;
constexpr int64_t kBytes = 64 << 10;

// The parameter: by io_uring, if that is permitted, or by threads.
class FileIoTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !MakeUringIo(kDepth).ok()) GTEST_SKIP() << MakeUringIo(kDepth).status();
    io_ = *MakeFileIo({.depth = kDepth, .uring = GetParam()});
    fd_ = base::UniqueFd(open((folder_ / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(fd_.valid());
  }

  // The results by tag.
  std::map<uint64_t, int64_t> Results(size_t count) {
    std::map<uint64_t, int64_t> results;
    while (results.size() < count) {
      const auto some = io_->Wait(base::Deadline::In(absl::Seconds(30)));
      EXPECT_TRUE(some.ok()) << some.status();
      if (!some.ok()) break;
      for (const IoResult& result : *some) results[result.tag] = result.result;
    }
    return results;
  }
  int64_t Carry(const IoRequest& request) {
    EXPECT_TRUE(io_->Start(std::span(&request, 1)).ok());
    return Results(1)[request.tag];
  }
  IoRequest Request(IoKind kind, uint64_t offset, Blocks* blocks, uint64_t tag) const {
    return {.kind = kind,
            .fd = fd_.get(),
            .offset = offset,
            .data = blocks->span().data(),
            .bytes = static_cast<uint32_t>(blocks->span().size()),
            .tag = tag};
  }

  base::TemporaryFolder folder_;
  base::UniqueFd fd_;
  std::unique_ptr<FileIo> io_;
};

TEST_P(FileIoTest, WhatIsWrittenAndSynced_IsReadBack) {
  Blocks written(kBytes);
  written.Fill(1);
  EXPECT_EQ(Carry(Request(IoKind::kWrite, 4096, &written, 5)), kBytes);
  EXPECT_EQ(Carry({.kind = IoKind::kSync, .fd = fd_.get(), .tag = 6}), 0);
  Blocks read(kBytes);
  EXPECT_EQ(Carry(Request(IoKind::kRead, 4096, &read, 7)), kBytes);
  EXPECT_TRUE(std::ranges::equal(read.span(), written.span()));
}

TEST_P(FileIoTest, ManyAtOnce_EachHaveTheirResult) {
  std::vector<Blocks> blocks;
  std::vector<IoRequest> requests;
  for (uint64_t i = 0; i < kDepth; ++i) {
    blocks.emplace_back(4096);
    blocks.back().Fill(i + 1);
  }
  for (uint64_t i = 0; i < kDepth; ++i) {
    requests.push_back(Request(IoKind::kWrite, i * 4096, &blocks[i], i));
  }
  ASSERT_TRUE(io_->Start(requests).ok());
  for (const auto& [tag, result] : Results(kDepth)) EXPECT_EQ(result, 4096) << tag;
  Blocks all(kDepth * 4096);
  EXPECT_EQ(Carry(Request(IoKind::kRead, 0, &all, 99)), kDepth * 4096);
  for (uint64_t i = 0; i < kDepth; ++i) {
    EXPECT_TRUE(std::ranges::equal(all.span().subspan(i * 4096, 4096), blocks[i].span()));
  }
}

TEST_P(FileIoTest, EndOfTheFile_IsAShortRead) {
  ASSERT_EQ(ftruncate(fd_.get(), 4096), 0);
  Blocks read(kBytes);
  EXPECT_EQ(Carry(Request(IoKind::kRead, 0, &read, 1)), 4096);
  EXPECT_EQ(Carry(Request(IoKind::kRead, 4096, &read, 2)), 0);
}

TEST_P(FileIoTest, FailedCalls_HaveTheirErrno) {
  Blocks read(kBytes);
  IoRequest request = Request(IoKind::kRead, 0, &read, 1);
  request.fd = -1;
  EXPECT_EQ(Carry(request), -EBADF);
}

TEST_P(FileIoTest, NothingUnderWay_IsNothingWithinTheDeadline) {
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(io_->Wait(base::Deadline::In(absl::Milliseconds(1))).status()));
}

TEST_P(FileIoTest, BuffersThatWereGivenAhead_AndOthers_ReadAndWriteTheSame) {
  Blocks known(kBytes);
  known.Fill(3);
  const std::array buffers = {known.span()};
  io_->UseBuffers(buffers).IgnoreError();  // a limit of locked memory only changes the speed
  EXPECT_EQ(Carry(Request(IoKind::kWrite, 0, &known, 1)), kBytes);
  Blocks other(kBytes);
  EXPECT_EQ(Carry(Request(IoKind::kRead, 0, &other, 2)), kBytes);
  EXPECT_TRUE(std::ranges::equal(known.span(), other.span()));
  known.Fill(0);
  EXPECT_EQ(Carry(Request(IoKind::kRead, 0, &known, 3)), kBytes);
  EXPECT_TRUE(std::ranges::equal(known.span(), other.span()));
}

TEST_P(FileIoTest, EndWithRequestsUnderWay_WaitsForThem) {
  Blocks written(kBytes);
  written.Fill(4);
  const IoRequest request = Request(IoKind::kWrite, 0, &written, 1);
  ASSERT_TRUE(io_->Start(std::span(&request, 1)).ok());
  io_.reset();
  Blocks read(kBytes);
  ASSERT_EQ(pread(fd_.get(), read.span().data(), kBytes, 0), static_cast<ssize_t>(kBytes));
  EXPECT_TRUE(std::ranges::equal(read.span(), written.span()));
}

INSTANTIATE_TEST_SUITE_P(Ways, FileIoTest, ::testing::Values(true, false),
                         [](const auto& way) { return way.param ? "Uring" : "Threads"; });

bool HasRingInMemory() {
  std::ifstream maps("/proc/self/maps");
  const std::string all{std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>()};
  return all.find("[io_uring]") != std::string::npos;
}

// Otherwise a killed parent's buffers would stay registered for as long as a child has the ring.
TEST(MakeUringIo, ForkedChild_HasNoPartOfTheRing) {
  const auto io = MakeUringIo(kDepth);
  if (!io.ok()) GTEST_SKIP() << io.status();
  EXPECT_TRUE(HasRingInMemory());
  const pid_t child = fork();
  if (child == 0) _exit(HasRingInMemory() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(MakeFileIo, WithoutIoUring_TakesThreadsAndSaysWhy) {
  const auto io = MakeFileIo({.depth = 4, .uring = false});
  ASSERT_TRUE(io.ok());
  EXPECT_EQ((*io)->how(), "4 threads, since io_uring is switched off");
  EXPECT_EQ((*io)->depth(), 4u);
}

// A profile of a container refuses the call in the same way as the kernel.
TEST(MakeFileIo, RingThatCannotBeMade_TakesThreads) {
  constexpr uint32_t kMoreThanAnyRing = 1 << 20;
  const auto io = MakeFileIo({.depth = kMoreThanAnyRing});
  ASSERT_TRUE(io.ok());
  EXPECT_THAT((*io)->how(), HasSubstr("8 threads, since"));
}

}  // namespace
}  // namespace geminid::disk
