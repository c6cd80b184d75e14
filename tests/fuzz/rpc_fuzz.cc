// Every method of the control plane, as a client with a session calls it: the request is counted,
// parsed and served by the daemon's own table of methods, on the daemon's own hub.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "daemon/service/calls/client_services.h"
#include "daemon/service/calls/job_services.h"
#include "daemon/service/calls/operator_services.h"
#include "daemon/service/entry/library_logs.h"
#include "daemon/service/sessions/plan_messages.h"
#include "proto/messages/trace_messages.h"
#include "tests/fuzz/fuzz_hub.h"
#include "tests/fuzz/fuzz_target.h"

namespace geminid::service {
namespace {

using google::protobuf::Message;

// The corpus names methods by their place; others follow in the order of their names.
constexpr const char* kFirst[] = {"ChunkService/Allocate",      "ChunkService/Free",
                                  "SessionService/CreateArena", "AdminService/ListChunks",
                                  "AdminService/ExplainChunk",  "PlanService/MakePlan"};

class Server {
 public:
  Server()
      : hub_(MakeHub(&limits_)),
        session_(hub_.get(), &log_, [](shm::SessionId) {}),
        chunk_(hub_.get()),
        plan_(hub_.get()),
        memory_(hub_.get()),
        admin_(hub_.get(), FactsOf(&vitals_)),
        job_(hub_.get(), &log_, JobSharingOptions(), &counts_, [](shm::SessionId) {}),
        settings_(config::Settings{}),
        config_(&settings_) {
    QuietLibraries();  // as the daemon does
    session_.AddTo(&methods_);
    chunk_.AddTo(&methods_);
    plan_.AddTo(&methods_);
    memory_.AddTo(&methods_);
    admin_.AddTo(&methods_);
    config_.AddTo(&methods_);
    job_.AddTo(&methods_);
    std::sort(methods_.begin(), methods_.end(),
              [](const RpcMethod& a, const RpcMethod& b) { return Order(a) < Order(b); });
  }

  const RpcMethod& Method(uint8_t number) const { return methods_[number % methods_.size()]; }
  SessionHub& hub() { return *hub_; }

 private:
  static std::pair<size_t, std::string> Order(const RpcMethod& method) {
    size_t place = 0;
    while (place < std::size(kFirst) && method.path != std::string("/geminid.v1.") + kFirst[place])
      ++place;
    return {place, method.path};
  }
  static DaemonFacts FactsOf(Vitals* vitals) {
    DaemonFacts facts;
    facts.vitals = vitals;
    return facts;
  }
  static std::unique_ptr<SessionHub> MakeHub(Limits* limits) {
    os::ConfigureLog(os::LogLevel::kError, os::LogFormat::kText);
    SessionHubOptions options;
    options.chunk_records = 4096;
    return fuzz::MakeHub(options, limits, fuzz::kMiB);
  }

  Limits limits_{config::TenantShares{}};
  TenantLog log_{&limits_};
  JobCounts counts_;
  Vitals vitals_;
  std::unique_ptr<SessionHub> hub_;
  SessionRpc session_;
  ChunkRpc chunk_;
  PlanRpc plan_;
  MemoryRpc memory_;
  AdminRpc admin_;
  JobRpc job_;
  SettingsInForce settings_;
  ConfigRpc config_;
  std::vector<RpcMethod> methods_;
};

// With three chunks.
SessionPtr OpenSessionWithChunks(SessionHub* hub, base::UniqueFd* client) {
  SessionPtr session = fuzz::OpenSession(hub, client);
  core::ChunkSpec chunk;
  chunk.kind = shm::ChunkKind::kGatheredWeight;
  chunk.bytes = 4096;
  chunk.has_home = false;
  fuzz::Require(hub->Allocate(session, {chunk, chunk, chunk}).ok(), "there is room for chunks");
  return session;
}

uint64_t CountItems(const Message& message) {
  uint64_t count = 0;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  const auto* reflection = message.GetReflection();
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int size = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      count +=
          1 + CountItems(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                              : reflection->GetMessage(message, field));
    }
  }
  return count;
}

// Null unless the method would have it parsed, and it is a message.
std::unique_ptr<Message> Parse(const RpcMethod& method, const uint8_t* data, size_t size) {
  std::string name = method.path.substr(1);
  std::replace(name.begin(), name.end(), '/', '.');
  const auto* const described =
      google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
  fuzz::Require(described != nullptr, "every method is in a service");
  const grpc::Slice slice(data, size);
  grpc::ByteBuffer bytes(&slice, 1);
  const absl::Status counted = CheckItems(described->input_type(), &bytes, method.bounds.items);
  std::unique_ptr<Message> message(google::protobuf::MessageFactory::generated_factory()
                                       ->GetPrototype(described->input_type())
                                       ->New());
  if (!message->ParseFromArray(data, static_cast<int>(size)) || !counted.ok()) return nullptr;
  fuzz::Require(CountItems(*message) <= method.bounds.items, "no more is made than was counted");
  return message;
}

void Plan(const v1::MakePlanRequest& request) {
  absl::StatusOr<planner::PlannerOptions> options = OptionsOf(request);
  if (!options.ok()) return;
  const auto trace = messages::TraceFromMessage<planner::Trace>(request.trace());
  absl::StatusOr<planner::Plan> plan = planner::MakePlan(trace, *options);
  if (!plan.ok()) return;
  fuzz::Require(planner::CheckPlan(trace, *plan).ok(), "a plan that is made can be carried out");
}

void RunOne(const uint8_t* data, size_t size) {
  static Server* const server = new Server;
  const RpcMethod& method = server->Method(data[0]);
  const std::unique_ptr<Message> request = Parse(method, data + 1, size - 1);
  if (const auto* plan = dynamic_cast<const v1::MakePlanRequest*>(request.get())) Plan(*plan);
  base::UniqueFd client;
  Caller caller;
  caller.identity = {"uid:1000", false};
  caller.session = OpenSessionWithChunks(&server->hub(), &client);
  const grpc::Slice slice(data + 1, size - 1);
  grpc::ByteBuffer bytes(&slice, 1);
  grpc::ByteBuffer answer;
  const absl::Status status = method.serve(caller, &bytes, &answer);
  fuzz::Require(!status.ok() || request != nullptr, "only a message is served");
  fuzz::Require(!absl::IsInternal(status), "a request is no fault of the daemon");
  auto closed = server->hub().Close(caller.session, core::CloseReason::kDetached);
  server->hub().Destroy(std::move(closed.garbage));
  fuzz::Require(server->hub().Inspect([](const core::Engine& engine, const auto& sessions) {
    return sessions.empty() && engine.Check().ok();
  }),
                "nothing is left and the books add up");
}

}  // namespace
}  // namespace geminid::service

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) geminid::service::RunOne(data, size);
  return 0;
}
