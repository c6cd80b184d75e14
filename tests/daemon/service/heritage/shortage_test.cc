// A daemon starts while the system lacks descriptors or memory. The sessions of an earlier daemon
// wait.
#include "daemon/service/heritage/shortage.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/service/sessions/session_hub.h"
#include "gmock/gmock.h"
#include "tests/base/few_descriptors.h"
#include "tests/daemon/service/restart_fixture.h"

namespace geminid::service {
namespace {

TEST(Shortage, ThatPasses_IsWaitedOutWithLongerAndLongerPauses) {
  std::vector<int64_t> pauses;
  Shortage shortage([&](core::Duration pause) { pauses.push_back(pause.nanoseconds()); });
  int calls = 0;
  const absl::Status status = shortage.Outlast(
      [&] { return ++calls < 10 ? absl::ResourceExhaustedError("no thread") : absl::OkStatus(); });
  EXPECT_EQ(status, absl::OkStatus());
  ASSERT_EQ(pauses.size(), 9u);
  EXPECT_EQ(pauses[0], 10'000'000);
  EXPECT_EQ(pauses[1], 20'000'000);
  EXPECT_EQ(pauses[8], 1'000'000'000);
}

TEST(Shortage, ThatStays_IsWaitedForOnceByAllCalls) {
  core::Duration waited;
  Shortage shortage([&](core::Duration pause) { waited = waited + pause; });
  const auto lacks = [] { return absl::ResourceExhaustedError("no thread"); };
  EXPECT_EQ(shortage.Outlast(lacks), lacks());
  EXPECT_GE(waited, kShortagePatience);
  EXPECT_LT(waited, kShortagePatience + core::Duration::Seconds(1));
  const core::Duration before = waited;
  EXPECT_EQ(shortage.Outlast(lacks), lacks());
  EXPECT_EQ(waited, before);
}

TEST(Shortage, AnotherError_IsNone) {
  Shortage shortage([](core::Duration) { ADD_FAILURE() << "waited"; });
  EXPECT_EQ(shortage.Outlast([] { return absl::DataLossError("torn"); }).code(),
            absl::StatusCode::kDataLoss);
}

// A store that is short of descriptors once it has listed its names.
class ShortStore final : public holder::DescriptorStore {
 public:
  ShortStore(Kept* kept, int more) : store_(kept), more_(more) {}
  absl::Status Put(const std::string& name, int fd) override { return store_.Put(name, fd); }
  absl::Status Remove(const std::string& name) override { return store_.Remove(name); }
  absl::StatusOr<std::vector<holder::StoredDescriptor>> List() override {
    auto listed = store_.List();
    few_.emplace(more_);
    return listed;
  }
  void Finish() override {}
  void HasEnough() { few_.reset(); }

 private:
  Kept::Store store_;
  const int more_;
  std::optional<FewDescriptors> few_;
};

class ShortageTest : public RestartTest {
 protected:
  absl::StatusOr<std::unique_ptr<SessionHub>> CreateHub(ShortStore* store, Shortage::Pause pause) {
    SessionHubOptions options;
    options.limits = &limits_;
    options.store = store;
    options.machine = os::ReadMachine(os::SystemNuma());
    options.engine.host_capacity_bytes = uint64_t{1} << 30;
    options.engine.devices = {core::HostDevice(shm::DeviceIndex{0}, uint64_t{1} << 30)};
    options.pause = std::move(pause);
    return SessionHub::Create(options);
  }

  Limits limits_{config::TenantShares{}};
};

TEST_F(ShortageTest, OfDescriptorsAtAnyPoint_EndsNoSession) {
  const std::unique_ptr<Session> first = Connect("first");
  const std::unique_ptr<Session> second = Connect("second");
  const ChunkHandle a = Allocate(first.get());
  const ChunkHandle b = Allocate(second.get());
  env_.Stop();
  const std::vector<std::string> names = kept_.Names();
  int refused = 0;
  for (bool taken_over = false; !taken_over;) {
    ShortStore store(&kept_, refused);
    const auto hub = CreateHub(&store, [](core::Duration) {});
    store.HasEnough();
    taken_over = hub.ok();
    EXPECT_EQ(kept_.Names(), names);
    if (taken_over) {
      EXPECT_EQ((*hub)->AttachedSessions(), 2u);
    } else {
      EXPECT_EQ(hub.status().code(), absl::StatusCode::kResourceExhausted) << hub.status();
      ASSERT_LT(++refused, 100);
    }
  }
  EXPECT_GE(refused, 4);  // each session takes two
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_TRUE(first->Use(a.id, absl::Seconds(30)).ok());
  EXPECT_TRUE(second->Use(b.id, absl::Seconds(30)).ok());
  EXPECT_EQ(Check(), absl::OkStatus());
}

TEST_F(ShortageTest, ThatPasses_IsWaitedOut) {
  const std::unique_ptr<Session> session = Connect();
  Allocate(session.get());
  env_.Stop();
  ShortStore store(&kept_, 0);
  int pauses = 0;
  const auto hub = CreateHub(&store, [&](core::Duration) {
    if (++pauses == 3) store.HasEnough();
  });
  store.HasEnough();
  ASSERT_TRUE(hub.ok()) << hub.status();
  EXPECT_EQ(pauses, 3);
  EXPECT_EQ((*hub)->AttachedSessions(), 1u);
}

// A manifest that contradicts itself is detected after the takeover.
TEST_F(RestartTest, SessionsOfAManifestThatContradictsItself_LoseTheirMemory) {
  const std::unique_ptr<Session> session = Connect();
  ASSERT_TRUE(session
                  ->Allocate({{"a", ChunkKind::kGeneric, 40'000, true},
                              {"b", ChunkKind::kGeneric, 20'000, true}})
                  .ok());
  env_.Stop();
  const std::vector<std::string> pools = kept_.NamesWith("-pool");
  ASSERT_EQ(pools.size(), 1u);
  const base::UniqueFd pool(::fcntl(kept_.Of(pools[0]).get(), F_DUPFD_CLOEXEC, 0));
  const base::UniqueFd slab(::fcntl(kept_.Of("s1-slab0").get(), F_DUPFD_CLOEXEC, 0));
  // The second chunk overlaps the first. Each lies inside their pool.
  constexpr size_t kSecondRecord = 128 + 128;
  Exchange("manifest", kSecondRecord + 16, 60'000);
  Exchange("manifest", kSecondRecord + 32, 0);
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_EQ(env_.daemon().hub().AttachedSessions(), 0u);
  EXPECT_FALSE(kept_.Has(pools[0]));
  for (const base::UniqueFd* memory : {&pool, &slab}) {
    struct stat file = {};
    ASSERT_EQ(::fstat(memory->get(), &file), 0);
    EXPECT_EQ(file.st_size, 0);
  }
  EXPECT_FALSE(session->Allocate({{"c", ChunkKind::kGeneric, 4096, true}}).ok());
}

}  // namespace
}  // namespace geminid::service
