#include "training/forecast/costs.h"

#include <algorithm>

namespace geminid::forecast {
namespace {

constexpr std::uint64_t kIndexBytes = 4;  // a token or a target

// Statistics of `norms` rows per token: mean and reciprocal deviation for a layer norm, only the
// latter for an RMS norm.
std::uint64_t NormStatisticsBytes(const Model& m, std::uint64_t norms, const Batch& batch) {
  return (m.layer_norms() ? 2 : 1) * norms * kFloatBytes * batch.tokens();
}

std::uint64_t StreamBytes(const Model& m, const Batch& batch) {
  return kElementBytes * batch.tokens() * m.hidden;
}

// The rows that the output layer sees.
std::uint64_t OutputRows(const Model& m, const Batch& batch) {
  return m.classifies() ? batch.sequences : batch.tokens();
}

std::uint64_t LogitBytes(const Model& m, const Batch& batch) {
  return (kElementBytes + kFloatBytes) * std::min(OutputRows(m, batch), kLogitRows) * m.logits();
}

// The bytes of the batch itself.
std::uint64_t InputBytes(const Model& m, const Batch& batch) {
  if (m.image) {
    return kElementBytes * batch.tokens() * m.image->patch_elements() +
           kIndexBytes * batch.sequences;
  }
  return (m.has_both() ? 3 : 2) * kIndexBytes * batch.tokens();
}

}  // namespace

Saved SavedBytes(const Model& m, Operator part, const Batch& batch) {
  const std::uint64_t tokens = batch.tokens();
  Saved saved;
  if (!IsPartOfLayer(part)) return saved;
  saved.input_bytes = StreamBytes(m, batch);
  const std::uint64_t norms = m.traits().norms.outputs ? 2 : 1;
  saved.rest_bytes = norms * (StreamBytes(m, batch) + NormStatisticsBytes(m, 1, batch));
  if (IsAttention(part)) {
    saved.wide_bytes = kElementBytes * tokens * (2 * m.query_columns() + 2 * m.kv_columns());
    saved.wide_bytes += kFloatBytes * tokens * m.heads;
    if (m.norms_heads()) {
      saved.wide_bytes += kElementBytes * tokens * (m.query_columns() + m.kv_columns()) +
                          NormStatisticsBytes(m, m.heads + m.kv_heads, batch);
    }
    saved.rest_bytes += saved.wide_bytes;
    return saved;
  }
  const std::uint64_t visits = tokens * m.mlps_per_token();
  saved.wide_bytes = kElementBytes * visits * m.intermediate * (m.mlp_inputs() + 1);
  saved.rest_bytes += saved.wide_bytes;
  if (m.routed()) {
    saved.rest_bytes += kFloatBytes * tokens * m.experts + 2 * kElementBytes * visits * m.hidden;
  }
  return saved;
}

std::uint64_t TrainerSavedBytes(const Model& m, Operator part, const Batch& batch) {
  if (!IsPartOfLayer(part)) return 0;
  const std::uint64_t tokens = batch.tokens();
  const std::uint64_t input = StreamBytes(m, batch);
  if (!IsAttention(part)) {
    return input + kElementBytes * tokens * m.mlps_per_token() * m.intermediate * m.mlp_inputs();
  }
  return input + kElementBytes * tokens * (2 * m.query_columns() + 2 * m.kv_columns()) +
         kFloatBytes * tokens * m.heads;
}

std::uint64_t EncoderOutputBytes(const Model& m, const Batch& batch) {
  return m.has_both() ? StreamBytes(m, batch) : 0;
}

Workspace WorkspaceOf(const Model& m, Operator op, PassDirection turn, const Batch& batch) {
  const std::uint64_t stream = StreamBytes(m, batch);
  Workspace space = {.batch_bytes = InputBytes(m, batch), .stream_bytes = stream};
  if (op == Operator::kOutput) {
    space.stream_bytes = 2 * stream;
    space.logit_bytes = LogitBytes(m, batch);
  } else if (op != Operator::kEmbedding && turn == PassDirection::kBackward) {
    const Saved saved = SavedBytes(m, op, batch);
    space.stream_bytes = 2 * stream + saved.rest_bytes - saved.wide_bytes;
    space.wide_bytes = saved.wide_bytes;
  }
  return space;
}

std::uint64_t WorkspaceBytes(const Model& m, Operator op, PassDirection turn, const Batch& batch) {
  return WorkspaceOf(m, op, turn, batch).bytes();
}

double Operations(const Model& m, Operator op, PassDirection turn, const Batch& batch) {
  const std::uint64_t rows = op == Operator::kOutput ? OutputRows(m, batch) : batch.tokens();
  // The table of the embedding is looked up, not multiplied.
  const double forward = 2 * static_cast<double>(rows) *
                         static_cast<double>(MatrixElements(m, op, m.mlps_per_token()));
  if (op == Operator::kOutput) return 3 * forward;  // both turns
  double attended = 0;
  if (IsAttention(op)) {
    attended = (op == Operator::kAttention ? 1 : 2) * static_cast<double>(batch.tokens()) *
               static_cast<double>(batch.sequence_length) * static_cast<double>(m.query_columns());
  }
  if (turn == PassDirection::kForward) return forward + 2 * attended;
  return 2 * forward + 5 * attended;
}

double WeightTraffic(const Model& m, Operator op, PassDirection turn, const Batch& batch) {
  const std::uint64_t experts = std::min(m.mlps(), batch.tokens() * m.mlps_per_token());
  std::uint64_t elements = MatrixElements(m, op, experts);
  if (op == Operator::kEmbedding && m.vocabulary > 0) {
    elements += batch.tokens() * m.table_columns();
  }
  const bool writes_gradient = turn == PassDirection::kBackward || op == Operator::kOutput;
  return static_cast<double>(kElementBytes * elements) * (writes_gradient ? 2 : 1);
}

double DeviceTraffic(const Model& m, Operator op, PassDirection turn, const Batch& batch) {
  return WeightTraffic(m, op, turn, batch) + static_cast<double>(SavedBytes(m, op, batch).bytes()) +
         static_cast<double>(WorkspaceBytes(m, op, turn, batch));
}

}  // namespace geminid::forecast
