#include "tests/hostile/attacks.h"

#include <fcntl.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "daemon/os/unix_socket.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/plan.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "proto/shm/ring.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/daemon_env/raw_http2.h"
#include "tests/hostile/chunks_request.h"

namespace geminid::hostile {
namespace {

using testing::Bytes;
using testing::GoodHello;
using testing::NewChannel;
using testing::RawClient;

using Clock = std::chrono::steady_clock;
using Requests = shm::RingWriter<shm::Request, shm::kRingEntries>;
constexpr auto kOneAttack = std::chrono::seconds(1);
constexpr uint64_t kMiB = uint64_t{1} << 20;

std::unique_ptr<RawClient> Attach(const std::string& socket,
                                  shm::DeathPolicy policy = shm::DeathPolicy::kFree) {
  shm::Hello hello = GoodHello();
  hello.death_policy = policy;
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(socket, hello);
  return client.ok() ? *std::move(client) : nullptr;
}

int Fd(const RawClient& client, shm::WelcomeFd which) {
  return client.fds()[static_cast<int>(which)].get();
}

std::unique_ptr<grpc::ClientContext> Context(const RawClient* client) {
  auto context = std::make_unique<grpc::ClientContext>();
  if (client != nullptr) client->Authenticate(context.get());
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  return context;
}

grpc::Status Allocate(const RawClient& client, int chunks, uint64_t bytes,
                      v1::AllocateChunksResponse* response) {
  return v1::ChunkService::NewStub(client.channel())
      ->Allocate(Context(&client).get(), ChunksRequest(chunks, bytes), response);
}

// Both events made to block and filled, then a request, then death.
void HangItsEvents(const std::string& socket) {
  const auto end = Clock::now() + kOneAttack;
  while (Clock::now() < end) {
    const auto client = Attach(socket);
    if (client == nullptr) return;
    for (const shm::WelcomeFd which :
         {shm::WelcomeFd::kDaemonEvent, shm::WelcomeFd::kClientEvent}) {
      ::fcntl(Fd(*client, which), F_SETFL, 0);
      const uint64_t most = ~uint64_t{0} - 1;
      (void)::send(Fd(*client, which), &most, sizeof(most), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (which == shm::WelcomeFd::kDaemonEvent) {
        (void)!::write(Fd(*client, which), &most, sizeof(most));
      }
    }
    client->client()->cursor.asleep.store(1);
    Requests requests(client->client()->requests, &client->client()->cursor.requests_written,
                      &client->state()->cursor.requests_read);
    shm::Request request = {};
    request.op = shm::RequestOp::kDrop;
    requests.TryPush(request);
  }
}

// Frees the chunks that a call is just making, by the numbers they will have.
void FreeWhatIsBeingMade(const std::string& socket) {
  const auto client = Attach(socket);
  if (client == nullptr) return;
  std::atomic<bool> stop{false};
  std::thread freer([&] {
    while (!stop.load()) {
      for (uint32_t chunk = 0; chunk < 4; ++chunk) {
        v1::FreeChunksRequest request;
        request.add_chunk(chunk);
        v1::FreeChunksResponse response;
        v1::ChunkService::NewStub(client->channel())
            ->Free(Context(client.get()).get(), request, &response);
      }
    }
  });
  const auto end = Clock::now() + kOneAttack;
  while (Clock::now() < end) {
    v1::AllocateChunksResponse response;
    if (!Allocate(*client, 1, 32 * kMiB, &response).ok()) break;
    (void)testing::Receive(client->connection());
  }
  stop.store(true);
  freer.join();
}

// Memory in its own socket, and mappings of memory that it has given back.
void KeepWhatIsGivenBack(const std::string& socket) {
  for (int i = 0; i < 4; ++i) {
    const auto client = Attach(socket);
    if (client == nullptr) return;
    v1::AllocateChunksResponse response;
    for (int pool = 0; pool < 3; ++pool) (void)Allocate(*client, 1, 8 * kMiB, &response);
    const testing::RawMessage message = testing::Receive(client->connection());
    if (message.fds.empty()) continue;
    void* const memory =
        ::mmap(nullptr, 8 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, message.fds[0].get(), 0);
    v1::DetachResponse detached;
    v1::SessionService::NewStub(client->channel())
        ->Detach(Context(client.get()).get(), v1::DetachRequest(), &detached);
    if (memory == MAP_FAILED) continue;
    // Writes that fail, rather than end this program, where the memory was taken away.
    (void)::madvise(memory, kMiB, MADV_POPULATE_WRITE);
    ::munmap(memory, 8 * kMiB);
  }
}

void SendLargeRequests(const std::string& socket) {
  v1::AllocateChunksRequest request;
  for (int i = 0; i < 1 << 20; ++i) request.add_chunks();
  const auto channel = NewChannel(socket);
  const auto stub = v1::ChunkService::NewStub(channel);
  for (const grpc_compression_algorithm compression : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP}) {
    const auto context = Context(nullptr);
    context->set_compression_algorithm(compression);
    v1::AllocateChunksResponse response;
    stub->Allocate(context.get(), request, &response);
  }
  if (const auto client = Attach(socket)) {
    v1::AllocateChunksResponse response;
    stub->Allocate(Context(client.get()).get(), request, &response);
  }
}

// Sessions and handshakes by the dozen, kept ones among them.
void TakeEveryPlace(const std::string& socket) {
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<base::UniqueFd> silent;
  for (int i = 0; i < 300; ++i) {
    auto client = Attach(socket, i % 2 == 0 ? shm::DeathPolicy::kKeep : shm::DeathPolicy::kFree);
    if (client == nullptr) break;
    v1::AllocateChunksResponse response;
    if (i % 16 == 0) (void)Allocate(*client, 1, 64, &response);
    clients.push_back(std::move(client));
  }
  for (int i = 0; i < 300; ++i) {
    absl::StatusOr<base::UniqueFd> fd = os::ConnectSeqpacket(socket + shm::kAttachSuffix);
    if (fd.ok()) silent.push_back(*std::move(fd));
  }
}

void ListInLoops(const std::string& socket) {
  std::vector<std::thread> loops;
  const auto end = Clock::now() + kOneAttack;
  for (int i = 0; i < 8; ++i) {
    loops.emplace_back([&socket, end] {
      const auto admin = v1::AdminService::NewStub(NewChannel(socket));
      v1::ListChunksRequest request;
      request.set_limit(65536);
      while (Clock::now() < end) {
        v1::ListChunksResponse chunks;
        admin->ListChunks(Context(nullptr).get(), request, &chunks);
        v1::ListSessionsResponse sessions;
        admin->ListSessions(Context(nullptr).get(), v1::ListSessionsRequest(), &sessions);
      }
    });
  }
  for (std::thread& loop : loops) loop.join();
}

// Calls that begin and never go on.
void HoldCalls(const std::string& socket) {
  grpc::CompletionQueue queue;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::GenericClientAsyncReaderWriter>> calls;
  for (int i = 0; i < 300; ++i) {
    if (i % 8 == 0) channels.push_back(NewChannel(socket));
    contexts.push_back(Context(nullptr));
    grpc::GenericStub stub(channels.back());
    calls.push_back(
        stub.PrepareCall(contexts.back().get(), "/geminid.v1.MemoryService/GetLedger", &queue));
    calls.back()->StartCall(nullptr);
  }
  std::this_thread::sleep_for(kOneAttack);
  for (const auto& context : contexts) context->TryCancel();
  queue.Shutdown();
  void* tag;
  bool ok;
  while (queue.Next(&tag, &ok)) {
  }
}

// The lock file, bad hellos, and descriptors that take long to close.
void AnnoyTheSockets(const std::string& socket) {
  const base::UniqueFd lock(::open((socket + shm::kLockSuffix).c_str(), O_RDONLY | O_CLOEXEC));
  if (lock.valid()) (void)::flock(lock.get(), LOCK_SH | LOCK_NB);
  static const base::UniqueFd slow = testing::SocketThatLingers(3600);
  shm::Hello bad = GoodHello();
  bad.rank = -1;
  const std::array<int, 1> fds = {slow.get()};
  const auto end = Clock::now() + kOneAttack;
  while (Clock::now() < end) {
    for (const auto& [type, suffix] :
         {std::pair(SOCK_SEQPACKET, shm::kAttachSuffix), std::pair(SOCK_STREAM, "")}) {
      const absl::StatusOr<base::UniqueFd> fd = os::ConnectUnix(type, socket + suffix);
      if (!fd.ok()) continue;
      (void)os::SendMessage(*fd, Bytes(bad), fds);
      (void)os::SendMessage(*fd, Bytes(bad), {});
    }
  }
}

void UseEveryDescriptor(const std::string& socket) {
  std::vector<base::UniqueFd> held;
  for (int i = 0; i < 400; ++i) {
    for (const auto& [type, suffix] :
         {std::pair(SOCK_SEQPACKET | SOCK_NONBLOCK, shm::kAttachSuffix),
          std::pair(SOCK_STREAM | SOCK_NONBLOCK, "")}) {
      absl::StatusOr<base::UniqueFd> fd = os::ConnectUnix(type, socket + suffix);
      if (fd.ok()) held.push_back(*std::move(fd));
    }
  }
}

// Garbage in the segment, holes in it, responses that are never read.
void CorruptSharedMemory(const std::string& socket) {
  std::mt19937_64 random(static_cast<uint64_t>(::getpid()) ^
                         static_cast<uint64_t>(Clock::now().time_since_epoch().count()));
  const auto end = Clock::now() + kOneAttack;
  while (Clock::now() < end) {
    const auto client = Attach(socket);
    if (client == nullptr) return;
    v1::AllocateChunksResponse response;
    (void)Allocate(*client, 4, 4096, &response);
    shm::ClientSegment* const segment = client->client();
    Requests requests(segment->requests, &segment->cursor.requests_written,
                      &client->state()->cursor.requests_read);
    for (int i = 0; i < 2000; ++i) {
      shm::Request request;
      auto* const words = reinterpret_cast<uint64_t*>(&request);
      for (size_t word = 0; word < sizeof(request) / sizeof(uint64_t); ++word) {
        words[word] = random() >> (random() % 64);
      }
      request.source = shm::ChunkId{static_cast<uint32_t>(random() % 6)};
      request.destination = shm::ChunkId{static_cast<uint32_t>(random() % 6)};
      (void)requests.TryPush(request);
      segment->lease[random() % 6].store(random());
      segment->completion[random() % shm::kCompletionWords].store(random() % 100);
      if (i % 16 == 0) client->Wake();
    }
    ::fallocate(Fd(*client, shm::WelcomeFd::kClientSegment),
                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(shm::ClientSegment));
    client->Wake();
    segment->cursor.requests_written.store(random());
    client->Wake();
  }
}

void PlanGarbage(const std::string& socket) {
  const auto client = Attach(socket);
  if (client == nullptr) return;
  v1::MakePlanRequest request;
  v1::Trace* const trace = request.mutable_trace();
  trace->set_arena_bytes(64 * kMiB);
  for (uint32_t i = 0; i < 2000; ++i) {
    v1::TraceChunk* const chunk = trace->add_chunks();
    chunk->set_chunk(i);
    chunk->set_device_bytes(kMiB);
    chunk->set_transfer_bytes(kMiB);
    trace->add_moments()->add_uses()->set_index((i * 7919) % 2000);
  }
  trace->mutable_link()->set_host_to_device_bytes_per_second(1);
  request.set_policy(v1::PLACEMENT_POLICY_AUTO);
  v1::MakePlanResponse response;
  const auto context = Context(client.get());
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  v1::PlanService::NewStub(client->channel())->MakePlan(context.get(), request, &response);
}

// Descriptors of memory that stay in the attach socket, also when their session is gone.
void LeaveDescriptorsUnread(const std::string& socket) {
  std::vector<base::UniqueFd> connections;
  const auto end = Clock::now() + kOneAttack;
  while (Clock::now() < end && connections.size() < 500) {
    absl::StatusOr<base::UniqueFd> fd = os::ConnectSeqpacket(socket + shm::kAttachSuffix);
    if (!fd.ok()) break;
    (void)os::SendMessage(*fd, Bytes(GoodHello()), {});
    connections.push_back(*std::move(fd));
  }
}

// Segments with all their pages there, kept after the session.
void KeepSegments(const std::string& socket) {
  std::vector<base::UniqueFd> kept;
  const auto end = Clock::now() + kOneAttack;
  while (Clock::now() < end) {
    const auto client = Attach(socket);
    if (client == nullptr) return;
    v1::AllocateChunksRequest request;
    for (int i = 0; i < 20000; ++i) {
      v1::ChunkSpec* chunk = request.add_chunks();
      chunk->set_kind(v1::CHUNK_KIND_GENERIC);
      chunk->set_bytes(64);
    }
    v1::AllocateChunksResponse response;
    v1::ChunkService::NewStub(client->channel())
        ->Allocate(Context(client.get()).get(), request, &response);
    for (const base::UniqueFd& fd : client->fds()) kept.emplace_back(::dup(fd.get()));
  }
}

// HTTP/2 that has no end, is taken back at once, or is never read, on a few connections.
void AbuseHttp2(const std::string& socket) {
  using testing::Frame;
  using testing::FrameType;
  std::string resets;
  for (uint32_t stream = 1; stream < 4000; stream += 2) {
    resets += Frame(FrameType::kHeaders, testing::kEndHeaders, stream,
                    testing::CallHeaders("/geminid.v1.AdminService/GetStatus"));
    resets += Frame(FrameType::kResetStream, 0, stream, std::string(4, '\0'));
  }
  const std::string text_without_end("\x00\x01x\x7f\xff\xff\xff\x7f", 8);
  const std::array<std::pair<std::string, std::string>, 3> abuses = {{
      {Frame(FrameType::kHeaders, 0, 1, text_without_end),
       Frame(FrameType::kContinuation, 0, 1, std::string(16384, 'x'))},
      {"", resets},
      {"", Frame(FrameType::kPing, 0, 0, "12345678")},
  }};
  constexpr int kPatienceMilliseconds = 20;
  std::vector<base::UniqueFd> open;
  const auto end = Clock::now() + kOneAttack;
  while (Clock::now() < end && open.size() < 30) {
    for (const auto& [first, then] : abuses) {
      absl::StatusOr<base::UniqueFd> fd = os::ConnectUnix(SOCK_STREAM, socket);
      if (!fd.ok()) continue;
      const std::string beginning = testing::Http2Beginning() + first;
      (void)testing::SendWithoutEnd(*fd, beginning, beginning.size(), kPatienceMilliseconds);
      (void)testing::SendWithoutEnd(*fd, then, 16 * kMiB, kPatienceMilliseconds);
      open.push_back(*std::move(fd));
    }
  }
}

// What is in the sessions of others.
void ReadOthers(const std::string& socket, Spoils* spoils) {
  const auto admin = v1::AdminService::NewStub(NewChannel(socket));
  const auto end = Clock::now() + kOneAttack;
  while (Clock::now() < end) {
    v1::ListSessionsResponse sessions;
    if (!admin->ListSessions(Context(nullptr).get(), v1::ListSessionsRequest(), &sessions).ok()) {
      return;
    }
    for (const v1::SessionInfo& session : sessions.sessions()) {
      if (session.uid() == ::getuid()) continue;
      v1::GetTraceRequest trace;
      trace.set_session(session.session());
      v1::TraceFile file;
      v1::ExplainChunkRequest explain;
      explain.set_session(session.session());
      v1::ExplainChunkResponse explanation;
      v1::ListChunksRequest list;
      list.set_session(session.session());
      v1::ListChunksResponse chunks;
      *spoils += admin->GetTrace(Context(nullptr).get(), trace, &file).ok() ? 1 : 0;
      *spoils += admin->ExplainChunk(Context(nullptr).get(), explain, &explanation).ok() ? 1 : 0;
      *spoils +=
          admin->ListChunks(Context(nullptr).get(), list, &chunks).ok() && chunks.chunks_size() > 0
              ? 1
              : 0;
    }
  }
}

}  // namespace

const std::vector<Attack>& Attacks() {
  // Most have nothing to gain but harm.
  const auto alone = [](void (*run)(const std::string&)) {
    return [run](const std::string& socket, Spoils*) { run(socket); };
  };
  static const std::vector<Attack> attacks = [&] {
    std::vector<Attack> all = {
        {"events that block", alone(HangItsEvents)},
        {"freeing what is being made", alone(FreeWhatIsBeingMade)},
        {"keeping what is given back", alone(KeepWhatIsGivenBack)},
        {"large and compressed requests", alone(SendLargeRequests)},
        {"every session and handshake", alone(TakeEveryPlace)},
        {"listing loops", alone(ListInLoops)},
        {"calls that hang", alone(HoldCalls)},
        {"lock file, bad hellos, slow descriptors", alone(AnnoyTheSockets)},
        {"every descriptor", alone(UseEveryDescriptor)},
        {"corrupt shared memory", alone(CorruptSharedMemory)},
        {"plans of garbage", alone(PlanGarbage)},
        {"descriptors never read", alone(LeaveDescriptorsUnread)},
        {"segments kept", alone(KeepSegments)},
        {"endless, reset and unread HTTP/2", alone(AbuseHttp2)},
        {"reading about others", ReadOthers},
    };
    for (Attack& attack : AttacksOnWhatIsShared()) all.push_back(std::move(attack));
    return all;
  }();
  return attacks;
}

}  // namespace geminid::hostile
