// Every request of the control plane: counted, parsed, and, for plans, planned.
#include <grpcpp/support/byte_buffer.h>

#include "daemon/planner/make_plan.h"
#include "daemon/service/client_services.h"
#include "daemon/service/operator_services.h"
#include "daemon/service/plan_messages.h"
#include "geminid/v1/admin.pb.h"
#include "geminid/v1/plan.pb.h"
#include "proto/messages/trace_messages.h"
#include "tests/fuzz/fuzz_target.h"

namespace geminid::service {
namespace {

constexpr uint64_t kMostItems = 1000;

uint64_t CountItems(const google::protobuf::Message& message) {
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

template <typename Request>
absl::StatusOr<Request> Parse(const grpc::Slice& bytes) {
  grpc::ByteBuffer buffer(&bytes, 1);
  const absl::Status counted = CheckItems(Request::descriptor(), &buffer, kMostItems);
  Request request;
  const bool parsed = grpc::SerializationTraits<Request>::Deserialize(&buffer, &request).ok();
  if (!counted.ok()) return counted;
  if (!parsed) return absl::InvalidArgumentError("no message");
  fuzz::Require(CountItems(request) <= kMostItems, "no more is made than was counted");
  return request;
}

void Plan(const v1::MakePlanRequest& request) {
  absl::StatusOr<planner::PlannerOptions> options = OptionsOf(request);
  if (!options.ok()) return;
  const auto trace = messages::TraceFromMessage<planner::Trace>(request.trace());
  absl::StatusOr<planner::Plan> plan = planner::MakePlan(trace, *options);
  if (!plan.ok()) return;
  fuzz::Require(planner::CheckPlan(trace, *plan).ok(), "a plan that is made can be carried out");
}

}  // namespace
}  // namespace geminid::service

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace geminid;           // NOLINT: one function
  using namespace geminid::service;  // NOLINT
  if (size == 0) return 0;
  const grpc::Slice bytes(data + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      (void)Parse<v1::AllocateChunksRequest>(bytes);
      break;
    case 1:
      (void)Parse<v1::FreeChunksRequest>(bytes);
      break;
    case 2:
      (void)Parse<v1::CreateArenaRequest>(bytes);
      break;
    case 3:
      (void)Parse<v1::ListChunksRequest>(bytes);
      break;
    case 4:
      (void)Parse<v1::ExplainChunkRequest>(bytes);
      break;
    default:
      if (const auto request = Parse<v1::MakePlanRequest>(bytes); request.ok()) Plan(*request);
  }
  return 0;
}
