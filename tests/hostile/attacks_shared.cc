// Attacks on what all tenants share: the links, the thread that serves the rings, the queue of jobs
// and the engine's mutex.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/plan.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "proto/shm/ring.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/chunks_request.h"

namespace geminid::hostile {
namespace {

using testing::RawClient;
using Clock = std::chrono::steady_clock;
using Requests = shm::RingWriter<shm::Request, shm::kRingEntries>;
constexpr auto kOneAttack = std::chrono::seconds(1);
constexpr uint64_t kMiB = uint64_t{1} << 20;

std::unique_ptr<RawClient> Attach(const std::string& socket, const std::string& job) {
  shm::Hello hello = testing::GoodHello();
  std::memset(hello.job, 0, sizeof(hello.job));
  job.copy(hello.job, sizeof(hello.job) - 1);
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(socket, hello);
  return client.ok() ? *std::move(client) : nullptr;
}

std::unique_ptr<grpc::ClientContext> Context(const RawClient& client) {
  auto context = std::make_unique<grpc::ClientContext>();
  client.Authenticate(context.get());
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  return context;
}

bool Allocate(const RawClient& client, int chunks, uint64_t bytes,
              v1::AllocateChunksResponse* response) {
  return v1::ChunkService::NewStub(client.channel())
      ->Allocate(Context(client).get(), ChunksRequest(chunks, bytes), response)
      .ok();
}

bool CreateArena(const RawClient& client, uint64_t bytes) {
  v1::CreateArenaRequest request;
  request.set_bytes(bytes);
  v1::CreateArenaResponse response;
  return v1::SessionService::NewStub(client.channel())
      ->CreateArena(Context(client).get(), request, &response)
      .ok();
}

bool Admit(const RawClient& client, int32_t priority, uint64_t device_bytes) {
  v1::AdmitRequest request;
  request.set_ranks(1);
  request.set_priority(priority);
  request.set_device_bytes(device_bytes);
  request.set_preemptible(true);
  request.set_may_wait(true);
  v1::AdmitResponse response;
  return v1::SessionService::NewStub(client.channel())
             ->Admit(Context(client).get(), request, &response)
             .ok() &&
         response.admitted();
}

void Push(const RawClient& client, const shm::Request& request) {
  Requests requests(client.client()->requests, &client.client()->cursor.requests_written,
                    &client.state()->cursor.requests_read);
  (void)requests.TryPush(request);
  if (client.state()->cursor.asleep.load() != 0) client.Wake();
}

shm::Request Load(uint64_t bytes) {
  shm::Request request = {};
  request.request_id = 1;
  request.op = shm::RequestOp::kTransfer;
  request.flags = shm::kAllocateDestination;
  request.cause = shm::TransferCause::kDemand;
  request.source = request.destination = shm::ChunkId{0};
  request.bytes = bytes;
  request.device_offset = shm::kAnyOffset;
  return request;
}

// One that the daemon refuses, and answers.
shm::Request Refused(uint64_t id) {
  shm::Request request = {};
  request.request_id = id;
  request.op = shm::RequestOp::kDrop;
  request.source = request.destination = shm::ChunkId{7777};
  return request;
}

// Tickets for as much as the link carries at once, none of which is ever completed.
void HoldTickets(const std::string& socket) {
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) {
    auto client = Attach(socket, absl::StrCat("holder", i));
    if (client == nullptr) break;
    v1::AllocateChunksResponse response;
    if (!CreateArena(*client, 16 * kMiB) || !Allocate(*client, 1, 16 * kMiB, &response)) break;
    clients.push_back(std::move(client));
  }
  for (const auto& client : clients) Push(*client, Load(16 * kMiB));
  std::this_thread::sleep_for(kOneAttack);
}

// The end of the wake-up that is the client's, in as many epoll entries as the system gives.
void WatchTheWakeUp(const std::string& socket) {
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const auto client = Attach(socket, "watcher");
  if (client == nullptr) return;
  constexpr int kOfEach = 1000;
  const base::UniqueFd& event = client->fds()[static_cast<int>(shm::WelcomeFd::kClientEvent)];
  std::vector<base::UniqueFd> copies;
  for (int i = 0; i < kOfEach; ++i) copies.emplace_back(::dup(event.get()));
  std::vector<base::UniqueFd> watchers;
  bool more = true;
  for (int i = 0; i < kOfEach && more; ++i) {
    watchers.emplace_back(::epoll_create1(EPOLL_CLOEXEC));
    more = watchers.back().valid();
    for (const base::UniqueFd& copy : copies) {
      epoll_event wanted = {.events = EPOLLIN | EPOLLET, .data = {}};
      more = more && ::epoll_ctl(watchers.back().get(), EPOLL_CTL_ADD, copy.get(), &wanted) == 0;
    }
  }
  const auto end = Clock::now() + kOneAttack;
  for (uint64_t id = 1; Clock::now() < end; ++id) {
    client->client()->cursor.asleep.store(1);
    Push(*client, Refused(id));
    // Room for the next wake-up and the next answer.
    char bytes[256];
    (void)!::read(event.get(), bytes, sizeof(bytes));
    client->client()->cursor.responses_read.store(client->state()->cursor.responses_written.load());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Jobs that run and jobs that wait, and then many charges that nobody needs to decide on.
void FillTheQueue(const std::string& socket) {
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 120; ++i) {
    auto client = Attach(socket, absl::StrCat("queue", i));
    if (client == nullptr) break;
    (void)Admit(*client, -50 - i % 50, kMiB);
    clients.push_back(std::move(client));
  }
  const auto end = Clock::now() + 2 * kOneAttack;
  while (!clients.empty() && Clock::now() < end) {
    v1::AllocateChunksResponse made;
    if (!Allocate(*clients.front(), 1, 64, &made) || made.chunk_size() == 0) break;
    v1::FreeChunksRequest request;
    request.add_chunk(made.chunk(0));
    v1::FreeChunksResponse response;
    v1::ChunkService::NewStub(clients.front()->channel())
        ->Free(Context(*clients.front()).get(), request, &response);
  }
}

// A job that says that it can yield, and does not.
void NeverYield(const std::string& socket) {
  const auto client = Attach(socket, "stubborn");
  if (client == nullptr || !Admit(*client, -50, 64 * kMiB)) return;
  (void)CreateArena(*client, 64 * kMiB);
  std::this_thread::sleep_for(2 * kOneAttack);
}

// As many chunks as a call may make, and their end, again and again.
void AllocateAndFreeMany(const std::string& socket) {
  const auto client = Attach(socket, "many");
  if (client == nullptr) return;
  const auto end = Clock::now() + 2 * kOneAttack;
  while (Clock::now() < end) {
    v1::AllocateChunksResponse made;
    if (!Allocate(*client, 60'000, 64, &made)) return;
    v1::FreeChunksRequest request;
    for (const uint32_t chunk : made.chunk()) request.add_chunk(chunk);
    v1::FreeChunksResponse response;
    v1::ChunkService::NewStub(client->channel())->Free(Context(*client).get(), request, &response);
    (void)testing::Receive(client->connection());
  }
}

// Plans with as many uses as a request may have.
void PlanMuch(const std::string& socket) {
  const auto client = Attach(socket, "planner");
  if (client == nullptr) return;
  constexpr int kChunks = 1000;
  constexpr int kUses = 1 << 18;
  v1::AllocateChunksResponse made;
  if (!Allocate(*client, kChunks, 64, &made)) return;
  v1::MakePlanRequest request;
  v1::Trace* const trace = request.mutable_trace();
  trace->set_arena_bytes(64 * kMiB);
  for (const uint32_t number : made.chunk()) {
    v1::TraceChunk* const chunk = trace->add_chunks();
    chunk->set_chunk(number);
    chunk->set_device_bytes(64);
    chunk->set_transfer_bytes(64);
  }
  for (int moment = 0; moment < kUses / kChunks; ++moment) {
    v1::TraceMoment* const uses = trace->add_moments();
    for (uint32_t i = 0; i < kChunks; ++i) uses->add_uses()->set_index(i);
  }
  trace->mutable_link()->set_host_to_device_bytes_per_second(1e9);
  request.set_policy(v1::PLACEMENT_POLICY_AUTO);
  const auto end = Clock::now() + 2 * kOneAttack;
  while (Clock::now() < end) {
    v1::MakePlanResponse response;
    v1::PlanService::NewStub(client->channel())
        ->MakePlan(Context(*client).get(), request, &response);
  }
}

}  // namespace

std::vector<Attack> AttacksOnWhatIsShared() {
  const auto alone = [](void (*run)(const std::string&)) {
    return [run](const std::string& socket, Spoils*) { run(socket); };
  };
  return {
      {"tickets never completed", alone(HoldTickets)},
      {"wake-ups watched by many", alone(WatchTheWakeUp)},
      {"long queue and small charges", alone(FillTheQueue)},
      {"arena never given back", alone(NeverYield)},
      {"chunks by the thousand", alone(AllocateAndFreeMany)},
      {"plans of many uses", alone(PlanMuch)},
  };
}

}  // namespace geminid::hostile
