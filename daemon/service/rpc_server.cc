#include "daemon/service/rpc_server.h"

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/library_logs.h"
#include "proto/rpc/deadline.h"

namespace geminid::service {
namespace {

// As many as the kernel allows by default (somaxconn): where it is full, gRPC's clients fail at
// once.
constexpr int kBacklog = 4096;
// The longest request, MakePlan's, and room for gRPC's own words.
constexpr int kMaxReceivedBytes = static_cast<int>(kPlanBounds.bytes) + 4096;
constexpr int kMaxSentBytes = 64 << 20;
constexpr int kMaxStreamsPerConnection = 16;
constexpr int kMaxMetadataBytes = 8192;
constexpr int kMaxWorkers = 16;
constexpr int64_t kTickNanoseconds = 20'000'000;
// How soon a tenant without a connection is forgotten.
constexpr int64_t kIdleTickNanoseconds = 10'000'000'000;

// The same socket has the same inode as long as it is open, and no other has it.
uint64_t InodeOf(int fd) {
  struct stat facts = {};
  return ::fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode) ? facts.st_ino : 0;
}

}  // namespace

std::string GrpcAddress(const std::string& path) {
  std::string address = "unix:";
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '-' || c == '.' ||
        c == '_' || c == '~') {
      address += c;
    } else {
      absl::StrAppendFormat(&address, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return address;
}

// One tenant's gRPC server, and the connections that it was given.
class RpcServer::Tenant : public grpc::CallbackGenericService {
 public:
  Tenant(const Identity& identity, CallShared* shared)
      : calls_(std::make_shared<TenantCalls>(identity, shared)) {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(this);
    builder.SetMaxReceiveMessageSize(kMaxReceivedBytes);
    builder.SetMaxSendMessageSize(kMaxSentBytes);
    // A few bytes could become any number: what is compressed is refused.
    for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
      builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
    }
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
    // The window of a stream that nobody reads stays at 64 KiB.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    server_ = builder.BuildAndStart();
  }

  bool started() const { return server_ != nullptr; }
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return calls_->Begin(context);
  }

  void Take(base::UniqueFd connection) {
    connections_.push_back({connection.get(), InodeOf(connection.get())});
    grpc::AddInsecureChannelFromFd(server_.get(), connection.Release());
  }
  // gRPC closes them without a word.
  size_t CountConnections() {
    std::erase_if(connections_, [](const Connection& c) { return InodeOf(c.fd) != c.inode; });
    return connections_.size();
  }
  TenantCalls& calls() { return *calls_; }
  void Shutdown(gpr_timespec deadline) { server_->Shutdown(deadline); }

 private:
  struct Connection {
    int fd;
    uint64_t inode;
  };

  const std::shared_ptr<TenantCalls> calls_;
  std::vector<Connection> connections_;
  std::unique_ptr<grpc::Server> server_;  // last: it uses the others until it is destroyed
};

RpcServer::RpcServer(const SettingsInForce* settings, const DaemonFacts& facts, os::EventLoop* loop,
                     Hub* hub, TenantLog* log, const Clients* clients,
                     std::function<void(shm::SessionId)> on_detached)
    : session_(hub, log, on_detached),
      chunk_(hub),
      plan_(hub),
      memory_(hub),
      admin_(hub, facts),
      config_(settings),
      job_(hub, log, std::move(on_detached)),
      loop_(loop),
      log_(log),
      clients_(clients),
      flood_(&hub->limits()) {
  shared_.hub = hub;
  shared_.limits = &hub->limits();
  shared_.log = log;
  shared_.times = &facts.vitals->calls;
  shared_.on_first_call = [this] { loop_->Post([] {}); };  // so that the loop looks at the clock
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const SettingsInForce* settings, const DaemonFacts& facts, base::UniqueFd handed_over,
    os::EventLoop* loop, Hub* hub, TenantLog* log, const Clients* clients,
    std::function<void(shm::SessionId)> on_detached) {
  QuietLibraries();
  std::unique_ptr<RpcServer> rpc(
      new RpcServer(settings, facts, loop, hub, log, clients, std::move(on_detached)));
  const int threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 4, kMaxWorkers);
  // The others of a tenant wait; those of other tenants need not.
  absl::StatusOr<std::unique_ptr<FairWorkers>> workers =
      FairWorkers::Create(threads, threads - threads / 4);
  if (!workers.ok()) return workers.status();
  rpc->workers_ = *std::move(workers);
  rpc->shared_.workers = rpc->workers_.get();
  rpc->shared_.worker_count = static_cast<size_t>(threads);
  rpc->AddMethods();
  rpc->keeper_ = std::make_unique<Tenant>(Identity{}, &rpc->shared_);
  absl::StatusOr<base::UniqueFd> listener =
      handed_over.valid() ? os::AdoptListener(std::move(handed_over), SOCK_STREAM, facts.socket)
                          : os::ListenStream(facts.socket, settings->Get().socket_mode, kBacklog);
  if (!listener.ok()) return listener.status();
  absl::StatusOr<std::unique_ptr<os::Acceptor>> acceptor = os::Acceptor::Create(
      *std::move(listener), "the control socket", loop,
      [raw = rpc.get()](base::UniqueFd connection) { raw->OnConnection(std::move(connection)); });
  if (!acceptor.ok()) return acceptor.status();
  rpc->acceptor_ = *std::move(acceptor);
  return rpc;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::AddMethods() {
  std::vector<RpcMethod> methods;
  session_.AddTo(&methods);
  chunk_.AddTo(&methods);
  plan_.AddTo(&methods);
  memory_.AddTo(&methods);
  admin_.AddTo(&methods);
  config_.AddTo(&methods);
  job_.AddTo(&methods);
  for (RpcMethod& method : methods) shared_.methods[method.path] = std::move(method);
  AddHealth();
}

// grpc.health.v1: its request is a text, its answer a number, each the first field of its message,
// as the well-known wrappers are.
void RpcServer::AddHealth() {
  constexpr int kServing = 1;
  constexpr int kNotServing = 2;
  RpcMethod method;
  method.path = "/grpc.health.v1.Health/Check";
  ServeWith<google::protobuf::StringValue, google::protobuf::Int32Value>(
      &method, [this](const Caller&, const google::protobuf::StringValue& service,
                      google::protobuf::Int32Value* status) {
        if (!service.value().empty()) {
          return absl::NotFoundError("health is that of the whole daemon: name no service");
        }
        status->set_value(draining_.load() ? kNotServing : kServing);
        return absl::OkStatus();
      });
  shared_.methods[method.path] = std::move(method);
}

// Closing one at once costs a hundredth of serving it.
absl::Status RpcServer::CheckRate(const std::string& name) {
  connections_.SetRate(
      shared_.limits->RateOf(config::kConnectionRate, config::kConnectionBurstSeconds));
  if (connections_.Take(name, Now())) return absl::OkStatus();
  return shared_.limits->Refuse(
      config::kConnectionRate, name,
      absl::StrCat("connects more than ", shared_.limits->Get(config::kConnectionRate),
                   " times a second"),
      "keep connections");
}

absl::Status RpcServer::CheckDescriptors(const base::UniqueFd& newest, const std::string& name) {
  if (!os::IsFromReserve(newest)) return absl::OkStatus();
  shared_.limits->Count(kOpenFiles, name);
  return absl::ResourceExhaustedError(absl::StrCat(
      "the daemon has no descriptor left for ", name, " of its ", os::MaxDescriptors(),
      " (open_files); raise the limit of open files (ulimit -n, LimitNOFILE=) and start it "
      "again"));
}

absl::Status RpcServer::CheckLimits(const std::string& name, Tenant* tenant) {
  Limits* const limits = shared_.limits;
  if (tenant == nullptr) {
    return limits->Refuse(
        config::kTenants, name,
        absl::StrCat("is one too many: ", tenants_.size(), " tenants have connections"),
        "end those of some");
  }
  // No tenant may have more than a quarter of the descriptors.
  const size_t most =
      std::min<size_t>(limits->Get(config::kConnections),
                       static_cast<size_t>(os::MaxDescriptors() - os::ReservedDescriptors()) / 4);
  if (tenant->CountConnections() < most) return absl::OkStatus();
  return limits->Refuse(config::kConnections, name,
                        absl::StrCat("has ", most, " connections, as many as a tenant may"),
                        "close some, raise the limit of open files (LimitNOFILE=)");
}

void RpcServer::OnConnection(base::UniqueFd connection) {
  if (flood_.Floods(connection, Now())) return;
  const absl::StatusOr<Client> client = clients_->OfCall(connection);
  if (!client.ok()) return;  // it has gone
  const std::string& name = client->identity.tenant;
  absl::Status status = CheckRate(name);
  if (status.ok()) status = CheckDescriptors(connection, name);
  Tenant* const tenant = status.ok() ? FindOrStart(client->identity) : nullptr;
  if (status.ok()) status = CheckLimits(name, tenant);
  if (status.ok()) return tenant->Take(std::move(connection));
  log_->Write(name, os::LogLevel::kWarning, "connection refused",
              {{"tenant", name}, {"error", std::string(status.message())}});
}

RpcServer::Tenant* RpcServer::FindOrStart(const Identity& identity) {
  const std::pair key(identity.tenant, identity.is_operator);
  auto found = tenants_.find(key);
  if (found != tenants_.end()) return found->second.get();
  if (tenants_.size() >= shared_.limits->Get(config::kTenants)) return nullptr;
  found = tenants_.emplace(key, std::make_unique<Tenant>(identity, &shared_)).first;
  if (found->second->started()) return found->second.get();
  tenants_.erase(found);
  return nullptr;
}

int64_t RpcServer::NextTick() const {
  return last_tick_ + (shared_.calls.load() > 0 ? kTickNanoseconds : kIdleTickNanoseconds);
}

void RpcServer::Expire(int64_t now_nanoseconds) {
  acceptor_->Expire(now_nanoseconds);
  if (tenants_.empty() || now_nanoseconds < NextTick()) return;
  last_tick_ = now_nanoseconds;
  for (auto i = tenants_.begin(); i != tenants_.end();) {
    i->second->calls().Expire(now_nanoseconds);
    if (i->second->CountConnections() > 0 || !i->second->calls().idle()) {
      ++i;
      continue;
    }
    // To destroy a server may take a moment; there is nothing left in it that could be waited for.
    workers_->Submit("", [gone = std::shared_ptr<Tenant>(std::move(i->second))] {});
    i = tenants_.erase(i);
  }
}

std::optional<int64_t> RpcServer::NextDeadline() const {
  const std::optional<int64_t> next = acceptor_->NextDeadline();
  if (tenants_.empty()) return next;
  return std::min(next.value_or(NextTick()), NextTick());
}

void RpcServer::Shutdown(absl::Duration patience) {
  acceptor_.reset();
  const gpr_timespec deadline = rpc::DeadlineIn(patience);
  for (const auto& [name, tenant] : tenants_) tenant->Shutdown(deadline);
  tenants_.clear();
}

}  // namespace geminid::service
