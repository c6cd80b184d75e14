// The hub without a daemon around it: how one session's requests affect another.
#include "daemon/service/sessions/session_hub.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "tests/base/few_descriptors.h"

namespace geminid::service {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
using Requests = shm::RingWriter<shm::Request, shm::kRingEntries>;
using Responses = shm::RingReader<shm::Response, shm::kRingEntries>;

// A session with one chunk at home, and the client's end of its rings.
class Client {
 public:
  explicit Client(SessionHub* hub, const std::string& run = "") : hub_(hub) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    socket_ = base::UniqueFd(ends[0]);
    core::SessionSpec spec;
    spec.tenant = "uid:1";
    spec.job = "test";
    spec.run = run;
    if (!run.empty()) spec.death_policy = shm::DeathPolicy::kKeep;
    absl::StatusOr<SessionPtr> session = hub->Open(spec, os::Peer(), base::UniqueFd(ends[1]));
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    EXPECT_TRUE(hub->CreateArena(session_, kMiB).ok());
    core::ChunkSpec chunk;
    chunk.kind = shm::ChunkKind::kGeneric;
    chunk.bytes = 4096;
    EXPECT_TRUE(hub->Allocate(session_, {chunk}).ok());
    mapping_ = *base::Mapping::Map(session_->segments().client_fd(), sizeof(shm::ClientSegment));
    requests_ = std::make_unique<Requests>(segment()->requests, &segment()->cursor.requests_written,
                                           &session_->segments().state()->cursor.requests_read);
    responses_ = std::make_unique<Responses>(
        session_->segments().state()->responses,
        &session_->segments().state()->cursor.responses_written, &segment()->cursor.responses_read);
  }

  const SessionPtr& session() const { return session_; }
  shm::ClientSegment* segment() { return reinterpret_cast<shm::ClientSegment*>(mapping_.data()); }

  SessionHub::PumpResult Send(shm::Request request) {
    request.request_id = ++sent_;
    EXPECT_TRUE(requests_->TryPush(request));
    SessionHub::PumpResult pumped =
        SessionHub::PumpResult::kMore;  // on a busy machine the pump may reach its time limit
    while (pumped == SessionHub::PumpResult::kMore) pumped = hub_->Pump(session_);
    return pumped;
  }
  bool Read(shm::Response* response) {
    return responses_->TryPop(response) == Responses::Result::kEntry;
  }
  // Causes a response that says that there is no such chunk.
  SessionHub::PumpResult Fail() {
    shm::Request request = {};
    request.op = shm::RequestOp::kDrop;
    request.source = request.destination = shm::ChunkId{7};
    return Send(request);
  }
  SessionHub::PumpResult Load() {
    shm::Request request = {};
    request.op = shm::RequestOp::kTransfer;
    request.flags = shm::kAllocateDestination | shm::kPublishWhenDone;
    request.cause = shm::TransferCause::kDemand;
    request.bytes = 4096;
    request.device_offset = shm::kAnyOffset;
    return Send(request);
  }
  SessionHub::PumpResult Done(const shm::Response& ticket) {
    segment()->completion[ticket.completion_index].store(ticket.ticket);
    shm::Request request = {};
    request.op = shm::RequestOp::kTransferDone;
    request.argument = ticket.ticket;
    return Send(request);
  }

 private:
  SessionHub* const hub_;
  base::UniqueFd socket_;
  SessionPtr session_;
  base::Mapping mapping_;
  std::unique_ptr<Requests> requests_;
  std::unique_ptr<Responses> responses_;
  uint64_t sent_ = 0;
};

// A hub with little memory. `store`, unless null, stores its descriptors.
std::unique_ptr<SessionHub> SmallHub(Limits* limits, holder::DescriptorStore* store = nullptr) {
  SessionHubOptions options;
  options.limits = limits;
  options.store = store;
  options.machine = os::ReadMachine(os::SystemNuma());
  options.arena_backing = memory::PageBacking::kSparse;
  options.engine.host_capacity_bytes = 16 * kMiB;
  options.engine.devices = {core::HostDevice(shm::DeviceIndex{0}, 16 * kMiB)};
  options.engine.transfers.link_bytes_in_flight = 1;
  absl::StatusOr<std::unique_ptr<SessionHub>> hub = SessionHub::Create(options);
  EXPECT_TRUE(hub.ok()) << hub.status();
  return *std::move(hub);
}

absl::StatusOr<SessionPtr> OpenSuccessor(SessionHub* hub, const core::SessionSpec& spec) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const base::UniqueFd client_end(ends[0]);
  return hub->Open(spec, os::Peer(), base::UniqueFd(ends[1]));
}

// A store that calls the hub on another thread whenever it gets a descriptor.
class CuriousStore final : public holder::DescriptorStore {
 public:
  absl::Status Put(const std::string&, int) override {
    if (hub == nullptr) return absl::OkStatus();
    const auto answer = std::make_shared<std::promise<size_t>>();
    std::thread([answer, asked = hub] { answer->set_value(asked->AttachedSessions()); }).detach();
    constexpr auto kPatience = std::chrono::seconds(20);
    unanswered += answer->get_future().wait_for(kPatience) == std::future_status::ready ? 0 : 1;
    ++asked_questions;
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<holder::StoredDescriptor>> List() override {
    return std::vector<holder::StoredDescriptor>();
  }
  void Finish() override {}

  SessionHub* hub = nullptr;
  int unanswered = 0;
  int asked_questions = 0;
};

// A stopped or slow store stops the session whose descriptors it gets, and no other.
TEST(SessionHub, StoreThatTakesItsTime_HoldsUpNobodyElse) {
  Limits limits{config::TenantShares{}};
  CuriousStore store;
  const std::unique_ptr<SessionHub> hub = SmallHub(&limits, &store);
  store.hub = hub.get();
  const Client client(hub.get());
  EXPECT_GT(store.asked_questions, 3);  // segments, books, a pool, a slab
  store.asked_questions = 0;
  hub->KeepAll();
  EXPECT_GT(store.asked_questions, 3);
  EXPECT_EQ(store.unanswered, 0);
}

TEST(SessionHub, StoreThatTakesItsTime_HoldsUpNobodyWhenASuccessorComes) {
  Limits limits{config::TenantShares{}};
  CuriousStore store;
  const std::unique_ptr<SessionHub> hub = SmallHub(&limits, &store);
  const auto killed = std::make_unique<Client>(hub.get(), "run");
  (void)hub->Close(killed->session(), core::CloseReason::kDied);
  store.hub = hub.get();
  const absl::StatusOr<SessionPtr> successor = OpenSuccessor(hub.get(), killed->session()->spec());
  ASSERT_TRUE(successor.ok()) << successor.status();
  EXPECT_EQ((*successor)->id(), killed->session()->id());
  EXPECT_GT(store.asked_questions, 3);
  EXPECT_EQ(store.unanswered, 0);
}

// A store that remembers its names, and ends a session while it gets that session's first
// descriptor.
class EndingStore final : public holder::DescriptorStore {
 public:
  absl::Status Put(const std::string& name, int fd) override {
    if (fd < 0) return absl::InvalidArgumentError("no descriptor");
    std::function<void()> end;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      names_.insert(name);
      const bool is_sessions = name != kKeptNode && name != kKeptManifest;
      if (is_sessions) end = std::exchange(end_, {});
    }
    if (end) end();
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& name) override {
    std::lock_guard<std::mutex> lock(mutex_);
    names_.erase(name);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<holder::StoredDescriptor>> List() override {
    return std::vector<holder::StoredDescriptor>();
  }
  void Finish() override {}

  // Loses all names.
  void LoseAll(std::function<void()> end) {
    std::lock_guard<std::mutex> lock(mutex_);
    names_.clear();
    end_ = std::move(end);
  }
  void AtNextPut(std::function<void()> end) {
    std::lock_guard<std::mutex> lock(mutex_);
    end_ = std::move(end);
  }
  std::set<std::string> names() {
    std::lock_guard<std::mutex> lock(mutex_);
    return names_;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
  std::function<void()> end_;
};

TEST(SessionHub, SessionThatEndsWhileAllIsKeptAgain_IsNotKept) {
  Limits limits{config::TenantShares{}};
  EndingStore store;
  const std::unique_ptr<SessionHub> hub = SmallHub(&limits, &store);
  const std::set<std::string> without_sessions = store.names();
  const auto client = std::make_unique<Client>(hub.get());
  const std::set<std::string> with_session = store.names();
  EXPECT_GT(with_session.size(), without_sessions.size() + 3);

  store.LoseAll({});
  hub->KeepAll();
  EXPECT_EQ(store.names(), with_session);
  store.LoseAll([&] {
    SessionHub::Closed closed = hub->Close(client->session(), core::CloseReason::kDetached);
    hub->Destroy(std::move(closed.garbage));
  });
  hub->KeepAll();
  EXPECT_EQ(store.names(), without_sessions);
}

// The session has more memory than the daemon has descriptors to spare.
TEST(SessionHub, StoreThatIsFilledAgain_GetsAllOfASessionWithFewDescriptors) {
  Limits limits{config::TenantShares{}};
  EndingStore store;
  const std::unique_ptr<SessionHub> hub = SmallHub(&limits, &store);
  const auto client = std::make_unique<Client>(hub.get());
  const core::ChunkSpec chunk = {.name = "c", .kind = shm::ChunkKind::kGeneric, .bytes = 64};
  for (int pool = 0; pool < 40; ++pool) {
    ASSERT_TRUE(hub->Allocate(client->session(), {chunk}).ok());
  }
  const std::set<std::string> all = store.names();
  store.LoseAll({});
  {
    const FewDescriptors few(10);
    hub->KeepAll();
  }
  EXPECT_EQ(store.names(), all);
}

// The names of the session that died stay stored. In the second case its own replacement has
// claimed them.
TEST(SessionHub, SuccessorThatDiesWhileItIsKept_TakesNothingOutOfTheStore) {
  for (const bool has_successor : {false, true}) {
    SCOPED_TRACE(has_successor);
    Limits limits{config::TenantShares{}};
    EndingStore store;
    const std::unique_ptr<SessionHub> hub = SmallHub(&limits, &store);
    const auto killed = std::make_unique<Client>(hub.get(), "run");
    const size_t all = store.names().size();
    const shm::SessionId id = killed->session()->id();
    (void)hub->Close(killed->session(), core::CloseReason::kDied);
    const core::SessionSpec spec = killed->session()->spec();
    store.AtNextPut([&] {
      for (const SessionPtr& session : hub->AllSessions()) {
        (void)hub->Close(session, core::CloseReason::kDied);
      }
      if (!has_successor) return;
      EXPECT_TRUE(OpenSuccessor(hub.get(), spec).ok());
    });
    EXPECT_TRUE(absl::IsAborted(OpenSuccessor(hub.get(), spec).status()));
    EXPECT_TRUE(store.names().contains(DescriptorName(id, kKeptCommit)));
    EXPECT_GE(store.names().size(), all);  // the descriptors of replaced sessions are removed later
  }
}

// The owner of the garbage frees the chunks slice by slice, and other clients are served in
// between.
TEST(SessionHub, SessionThatCloses_HoldsUpNobodyUntilItsChunksAreFreed) {
  Limits limits{config::TenantShares{}};
  const std::unique_ptr<SessionHub> hub = SmallHub(&limits);
  const auto closes = std::make_unique<Client>(hub.get());
  const std::vector<core::ChunkSpec> specs(
      1000, core::ChunkSpec{.name = "c", .kind = shm::ChunkKind::kGeneric, .bytes = 64});
  ASSERT_TRUE(hub->Allocate(closes->session(), specs).ok());
  Client other(hub.get());
  const auto chunks = [&] {
    return hub->Inspect([](const core::Engine& engine, const auto&) {
      return engine.ChunkCount(core::kNoSession);
    });
  };
  EXPECT_EQ(chunks(), 1002u);
  SessionHub::Closed closed = hub->Close(closes->session(), core::CloseReason::kDied);
  EXPECT_TRUE(closed.now);
  EXPECT_EQ(chunks(), 1002u);
  EXPECT_EQ(hub->AttachedSessions(), 1u);
  EXPECT_EQ(other.Load(), SessionHub::PumpResult::kArmed);
  shm::Response ticket;
  ASSERT_TRUE(other.Read(&ticket));
  EXPECT_EQ(ticket.op, shm::ResponseOp::kTicket);
  hub->Destroy(std::move(closed.garbage));
  EXPECT_EQ(chunks(), 1u);
  EXPECT_EQ(hub->AllSessions().size(), 1u);
}

// In the session, the engine and its books alike: Check compares them.
TEST(SessionHub, SessionThatEnds_HasEndedForAllWhoAsk) {
  Limits limits{config::TenantShares{}};
  const std::unique_ptr<SessionHub> hub = SmallHub(&limits);
  const auto attached = [&](shm::SessionId id) {
    EXPECT_EQ(hub->Check(), absl::OkStatus());
    return hub->Inspect(
        [&](const core::Engine& engine, const auto&) { return engine.IsAttached(id); });
  };
  const auto killed = std::make_unique<Client>(hub.get(), "run");
  const shm::SessionId id = killed->session()->id();
  EXPECT_TRUE(attached(id) && !killed->session()->ended());
  (void)hub->Close(killed->session(), core::CloseReason::kDied);
  EXPECT_TRUE(!attached(id) && killed->session()->ended());
  const SessionPtr replacement = *OpenSuccessor(hub.get(), killed->session()->spec());
  EXPECT_TRUE(attached(id) && !replacement->ended());
  EXPECT_TRUE(killed->session()->ended());  // the old client's part stays ended
  const auto closed = hub->EndJob("uid:1", "test", /*run=*/"", /*now=*/true);
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_TRUE(!attached(id) && replacement->ended());
}

// Both sessions share a link that carries one copy at a time, so one copy begins when the other
// ends.
TEST(SessionHub, TicketThatFindsTheRingFull_ComesWithoutAnyRequestOfItsSession) {
  Limits limits{config::TenantShares{}};
  const std::unique_ptr<SessionHub> hub = SmallHub(&limits);
  Client busy(hub.get());
  Client waits(hub.get());
  ASSERT_EQ(busy.Load(), SessionHub::PumpResult::kArmed);
  shm::Response ticket;
  ASSERT_TRUE(busy.Read(&ticket));
  ASSERT_EQ(ticket.op, shm::ResponseOp::kTicket);
  ASSERT_EQ(waits.Load(), SessionHub::PumpResult::kArmed);
  for (uint32_t i = 0; i < shm::kRingEntries; ++i)
    ASSERT_NE(waits.Fail(), SessionHub::PumpResult::kCorrupt);
  busy.Done(ticket);
  // The client reads its ring and sends nothing.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  shm::Response response = {};
  while (response.op != shm::ResponseOp::kTicket) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "its ticket never came";
    if (!waits.Read(&response)) hub->Tick();
  }
  EXPECT_EQ(response.request_id, 1u);
}

}  // namespace
}  // namespace geminid::service
