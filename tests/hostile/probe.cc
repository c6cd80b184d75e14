#include "tests/hostile/probe.h"

#include <grpcpp/grpcpp.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"

namespace geminid::hostile {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kBytes = 4096;

}  // namespace

Probe::Probe(std::unique_ptr<testing::RawClient> client)
    : client_(std::move(client)),
      requests_(client_->client()->requests, &client_->client()->cursor.requests_written,
                &client_->state()->cursor.requests_read),
      responses_(client_->state()->responses, &client_->state()->cursor.responses_written,
                 &client_->client()->cursor.responses_read) {}

std::unique_ptr<Probe> Probe::Attach(const std::string& socket) {
  absl::StatusOr<std::unique_ptr<testing::RawClient>> client =
      testing::RawClient::Attach(socket, testing::GoodHello());
  if (!client.ok()) return nullptr;
  grpc::ClientContext arena_context, chunk_context;
  (*client)->Authenticate(&arena_context);
  (*client)->Authenticate(&chunk_context);
  v1::CreateArenaRequest arena;
  arena.set_bytes(uint64_t{1} << 20);
  v1::CreateArenaResponse made;
  v1::AllocateChunksRequest request;
  v1::ChunkSpec* chunk = request.add_chunks();
  chunk->set_kind(v1::CHUNK_KIND_GENERIC);
  chunk->set_bytes(kBytes);
  chunk->set_has_home(true);
  v1::AllocateChunksResponse chunks;
  const bool has_all = v1::SessionService::NewStub((*client)->channel())
                           ->CreateArena(&arena_context, arena, &made)
                           .ok() &&
                       v1::ChunkService::NewStub((*client)->channel())
                           ->Allocate(&chunk_context, request, &chunks)
                           .ok();
  return has_all ? std::unique_ptr<Probe>(new Probe(*std::move(client))) : nullptr;
}

shm::Response Probe::Do(shm::Request request) {
  request.request_id = ++last_;
  while (!requests_.TryPush(request)) ::sched_yield();
  if (client_->state()->cursor.asleep.load() != 0) client_->Wake();
  shm::Response response = {};
  while (responses_.TryPop(&response) != Responses::Result::kEntry ||
         response.request_id != request.request_id) {
    ::sched_yield();
  }
  return response;
}

std::vector<double> Probe::Ask(Clock::duration time) {
  std::vector<double> microseconds;
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
    shm::Request load = {};
    load.op = shm::RequestOp::kTransfer;
    load.flags = shm::kAllocateDestination;
    load.cause = shm::TransferCause::kDemand;
    load.bytes = kBytes;
    load.device_offset = shm::kAnyOffset;
    const auto began = Clock::now();
    const shm::Response ticket = Do(load);
    microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
    client_->client()->completion[ticket.completion_index].store(ticket.ticket);
    shm::Request done = {};
    done.request_id = ++last_;
    done.op = shm::RequestOp::kTransferDone;
    done.argument = ticket.ticket;
    while (!requests_.TryPush(done)) ::sched_yield();
    shm::Request drop = {};
    drop.op = shm::RequestOp::kDrop;
    (void)Do(drop);
  }
  return microseconds;
}

double Percentile(std::vector<double> values, double hundredths) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto place = static_cast<size_t>(static_cast<double>(values.size()) * hundredths / 100);
  return values[std::min(place, values.size() - 1)];
}

}  // namespace geminid::hostile
