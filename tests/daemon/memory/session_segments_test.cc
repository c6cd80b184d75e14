#include "daemon/memory/session_segments.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

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

}  // namespace
}  // namespace geminid::memory
