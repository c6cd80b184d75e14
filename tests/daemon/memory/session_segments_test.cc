#include "daemon/memory/session_segments.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/mapping.h"

namespace geminid::memory {
namespace {

TEST(SessionSegments, Create_WritesTheHeaders) {
  absl::StatusOr<SessionSegments> segments = SessionSegments::Create(shm::SessionId{7}, 3);
  ASSERT_TRUE(segments.ok()) << segments.status();
  const shm::StateHeader& state = segments->state()->header;
  EXPECT_EQ(state.magic, shm::kStateMagic);
  EXPECT_EQ(state.version, shm::kLayoutVersion);
  EXPECT_EQ(state.max_chunks, shm::kMaxChunks);
  EXPECT_EQ(state.ring_entries, shm::kRingEntries);
  EXPECT_EQ(state.session_id, 7u);
  EXPECT_EQ(state.daemon_epoch.load(), 3u);
  EXPECT_EQ(state.phase.load(), static_cast<uint32_t>(shm::Phase::kServing));
  EXPECT_EQ(segments->client()->header.magic, shm::kClientMagic);
  EXPECT_EQ(segments->client()->header.max_chunks, shm::kMaxChunks);
  absl::StatusOr<base::Mapping> commit =
      base::Mapping::Map(segments->commit_fd(), sizeof(shm::CommitSegment));
  ASSERT_TRUE(commit.ok());
  const auto* commit_segment = reinterpret_cast<const shm::CommitSegment*>(commit->data());
  EXPECT_EQ(commit_segment->header.magic, shm::kCommitMagic);
  EXPECT_EQ(shm::NewestRecord(*commit_segment), nullptr);
}

TEST(SessionSegments, StateSegment_CannotBeMappedWritableByTheClient) {
  absl::StatusOr<SessionSegments> segments = SessionSegments::Create(shm::SessionId{1}, 1);
  ASSERT_TRUE(segments.ok());
  EXPECT_FALSE(base::Mapping::Map(segments->state_fd(), sizeof(shm::StateSegment)).ok());
  void* view = ::mmap(nullptr, sizeof(shm::StateSegment), PROT_READ, MAP_SHARED,
                      segments->state_fd().get(), 0);
  ASSERT_NE(view, MAP_FAILED);
  segments->state()->state[5].store(42);
  EXPECT_EQ(static_cast<const shm::StateSegment*>(view)->state[5].load(), 42u);
  ::munmap(view, sizeof(shm::StateSegment));
}

uint64_t BytesHeld(const base::UniqueFd& fd) {
  struct stat facts = {};
  EXPECT_EQ(::fstat(fd.get(), &facts), 0);
  return static_cast<uint64_t>(facts.st_blocks) * 512;
}

TEST(SessionSegments, Discarded_HoldOnePageThatSaysHowItStands) {
  absl::StatusOr<SessionSegments> segments = SessionSegments::Create(shm::SessionId{1}, 1);
  ASSERT_TRUE(segments.ok());
  for (auto& word : segments->state()->state) word.store(1);
  for (auto& word : segments->client()->lease) word.store(1);
  ASSERT_EQ(::posix_fallocate(segments->commit_fd().get(), 0, sizeof(shm::CommitSegment)), 0);
  segments->state()->header.phase.store(static_cast<uint32_t>(shm::Phase::kGone));
  EXPECT_GE(BytesHeld(segments->state_fd()), 8 * shm::kMaxChunks);
  segments->Discard();
  EXPECT_EQ(BytesHeld(segments->state_fd()), 4096u);
  EXPECT_EQ(BytesHeld(segments->client_fd()), 0u);
  EXPECT_EQ(BytesHeld(segments->commit_fd()), 0u);
  EXPECT_EQ(segments->state()->header.phase.load(), static_cast<uint32_t>(shm::Phase::kGone));
  EXPECT_EQ(segments->state()->state[shm::kMaxChunks - 1].load(), 0u);
}

}  // namespace
}  // namespace geminid::memory
