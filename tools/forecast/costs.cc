#include "tools/forecast/costs.h"

#include <algorithm>

namespace geminid::forecast {
namespace {

constexpr std::uint64_t kIndexBytes = 4;  // a token or a target

std::uint64_t MlpInputs(const Model& m) { return m.gated_mlp ? 2 : 1; }

// Of one layer norm or RMS norm: mean and reciprocal deviation, or the latter alone.
std::uint64_t NormStatisticsBytes(const Model& m, const Batch& batch) {
  return (m.norm_shift ? 2 : 1) * kFloatBytes * batch.tokens();
}

std::uint64_t StreamBytes(const Model& m, const Batch& batch) {
  return kElementBytes * batch.tokens() * m.hidden;
}

std::uint64_t LogitBytes(const Model& m, const Batch& batch) {
  return (kElementBytes + kFloatBytes) * std::min(batch.tokens(), kLogitRows) * m.vocabulary;
}

// Elements of the matrices of one operator, and of its tables as far as they are read.
std::uint64_t MatrixElements(const Model& m, Operator op, const Batch& batch) {
  switch (op) {
    case Operator::kEmbedding: {
      const std::uint64_t projection =
          m.table_columns() == m.hidden ? 0 : m.table_columns() * m.hidden;
      return batch.tokens() * m.table_columns() + projection;
    }
    case Operator::kAttention:
      return m.hidden * (2 * m.query_columns() + 2 * m.kv_columns());
    case Operator::kMlp:
      return (MlpInputs(m) + 1) * m.hidden * m.intermediate;
    case Operator::kOutput: {
      const std::uint64_t projection =
          m.table_columns() == m.hidden ? 0 : m.table_columns() * m.hidden;
      return m.vocabulary * m.table_columns() + projection;
    }
  }
  return 0;
}

// What a token is multiplied with: the table of the embedding is looked up, not multiplied.
double MultipliedElements(const Model& m, Operator op, const Batch& batch) {
  if (op == Operator::kEmbedding) {
    return m.table_columns() == m.hidden ? 0 : static_cast<double>(m.table_columns() * m.hidden);
  }
  return static_cast<double>(MatrixElements(m, op, batch));
}

// Of everything that a half keeps beside its input, and of its input.
std::uint64_t BackwardBytes(const Model& m, Operator half, const Batch& batch) {
  const Saved saved = SavedBytes(m, half, batch);
  return 2 * StreamBytes(m, batch) + saved.rest_bytes;
}

}  // namespace

Saved SavedBytes(const Model& m, Operator half, const Batch& batch) {
  const std::uint64_t tokens = batch.tokens();
  Saved saved;
  if (half != Operator::kAttention && half != Operator::kMlp) return saved;
  saved.input_bytes = StreamBytes(m, batch);
  saved.rest_bytes = StreamBytes(m, batch) + NormStatisticsBytes(m, batch);
  if (half == Operator::kAttention) {
    saved.rest_bytes += kElementBytes * tokens * (2 * m.query_columns() + 2 * m.kv_columns());
    saved.rest_bytes += kFloatBytes * tokens * m.heads;
  } else {
    saved.rest_bytes += kElementBytes * tokens * m.intermediate * (MlpInputs(m) + 1);
  }
  return saved;
}

std::uint64_t WorkspaceBytes(const Model& m, Operator op, Turn turn, const Batch& batch) {
  const std::uint64_t indices = 2 * kIndexBytes * batch.tokens();
  if (op == Operator::kOutput) return indices + 2 * StreamBytes(m, batch) + LogitBytes(m, batch);
  if (op == Operator::kEmbedding || turn == Turn::kForward) return indices + StreamBytes(m, batch);
  return indices + BackwardBytes(m, op, batch);
}

double Operations(const Model& m, Operator op, Turn turn, const Batch& batch) {
  const double tokens = static_cast<double>(batch.tokens());
  const double forward = 2 * tokens * MultipliedElements(m, op, batch);
  const double attended = op == Operator::kAttention
                              ? tokens * static_cast<double>(batch.sequence_length) *
                                    static_cast<double>(m.query_columns())
                              : 0;
  if (op == Operator::kOutput) return 3 * forward;  // both turns
  if (turn == Turn::kForward) return forward + 2 * attended;
  return 2 * forward + 5 * attended;
}

double DeviceTraffic(const Model& m, Operator op, Turn turn, const Batch& batch) {
  const double weights = static_cast<double>(kElementBytes * MatrixElements(m, op, batch));
  const bool writes_gradient = turn == Turn::kBackward || op == Operator::kOutput;
  return weights * (writes_gradient ? 2 : 1) +
         static_cast<double>(SavedBytes(m, op, batch).bytes()) +
         static_cast<double>(WorkspaceBytes(m, op, turn, batch));
}

}  // namespace geminid::forecast
