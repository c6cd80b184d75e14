// Values and state of parameters, as wholes and as shards.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "geminid/c_api.h"
#include "geminid/zero.h"

namespace geminid::c_api {
namespace {

absl::StatusOr<zero::StateKind> ToKind(int32_t kind) {
  GEMINID_RETURN_IF_ERROR(CheckNumber(kind, GEMINID_VALUE, GEMINID_EXP_AVG_SQ, "kind"));
  return static_cast<zero::StateKind>(kind);
}

// The memory for `count` elements, to read or to write.
template <typename Float>
absl::StatusOr<std::span<Float>> ToSpan(Float* values, uint64_t count) {
  if (count > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(values, "values"));
  return std::span<Float>(values, count);
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace
using geminid::zero::ParameterId;
using geminid::zero::StateKind;

geminid_code geminid_engine_initialize(geminid_engine* engine, geminid_fill* fill, void* context,
                                       geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(reinterpret_cast<const void*>(fill), "fill"));
    return object.engine().InitializeShards(
        [&](ParameterId id, uint64_t first, std::span<float> values) -> absl::Status {
          const uint32_t parameter = static_cast<uint32_t>(id);
          const int result = fill(context, parameter, first, values.data(), values.size());
          if (result == 0) return absl::OkStatus();
          return absl::CancelledError(absl::StrCat("fill returned ", result, " for parameter ",
                                                   parameter, " from element ", first,
                                                   "; initialize again before the first "
                                                   "micro-batch"));
        });
  });
}

geminid_code geminid_engine_shard(geminid_engine* engine, uint32_t parameter, geminid_range* ranges,
                                  size_t capacity, size_t* count, geminid_error* error) {
  return OnParameter(engine, parameter, error, [&](EngineObject& object, ParameterId id) {
    GEMINID_RETURN_IF_ERROR(CheckGiven(count, "count"));
    if (capacity > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(ranges, "ranges"));
    const auto shard = object.engine().ShardOf(id);
    *count = shard.size();
    for (size_t i = 0; i < std::min(capacity, shard.size()); ++i) {
      ranges[i] = {shard[i].offset, shard[i].elements};
    }
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_has_state(geminid_engine* engine, uint32_t parameter, int32_t kind,
                                      int* has_state, geminid_error* error) {
  return OnParameter(engine, parameter, error,
                     [&](EngineObject& object, ParameterId id) -> absl::Status {
                       GEMINID_RETURN_IF_ERROR(CheckGiven(has_state, "has_state"));
                       GEMINID_ASSIGN_OR_RETURN(const StateKind of, ToKind(kind));
                       *has_state = object.engine().HasState(id, of) ? 1 : 0;
                       return absl::OkStatus();
                     });
}

geminid_code geminid_engine_read_shard(geminid_engine* engine, uint32_t parameter, int32_t kind,
                                       uint64_t offset, float* values, uint64_t count,
                                       geminid_error* error) {
  return OnParameter(engine, parameter, error,
                     [&](EngineObject& object, ParameterId id) -> absl::Status {
                       GEMINID_ASSIGN_OR_RETURN(const StateKind of, ToKind(kind));
                       GEMINID_ASSIGN_OR_RETURN(const auto into, ToSpan(values, count));
                       return object.engine().ReadShard(id, of, offset, into);
                     });
}

geminid_code geminid_engine_write_shard(geminid_engine* engine, uint32_t parameter, int32_t kind,
                                        uint64_t offset, const float* values, uint64_t count,
                                        geminid_error* error) {
  return OnParameter(engine, parameter, error,
                     [&](EngineObject& object, ParameterId id) -> absl::Status {
                       GEMINID_ASSIGN_OR_RETURN(const StateKind of, ToKind(kind));
                       GEMINID_ASSIGN_OR_RETURN(const auto from, ToSpan(values, count));
                       return object.engine().WriteShard(id, of, offset, from);
                     });
}

geminid_code geminid_engine_read_parameter(geminid_engine* engine, uint32_t parameter,
                                           float* values, uint64_t count, geminid_error* error) {
  return OnParameter(
      engine, parameter, error, [&](EngineObject& object, ParameterId id) -> absl::Status {
        GEMINID_ASSIGN_OR_RETURN(const auto into, ToSpan(values, count));
        GEMINID_ASSIGN_OR_RETURN(const uint64_t elements, object.Elements(parameter));
        if (count != elements) {
          return absl::InvalidArgumentError(absl::StrCat(
              "count is ", count, "; parameter ", parameter, " has ", elements, " elements"));
        }
        GEMINID_ASSIGN_OR_RETURN(const std::vector<float> whole, object.engine().ReadParameter(id));
        std::copy(whole.begin(), whole.end(), into.begin());
        return absl::OkStatus();
      });
}
