#include "training/meshes/mesh_rank_work.h"

#include <algorithm>
#include <cmath>

#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::parallel {
namespace {

using collectives::LinearRole;
using collectives::TensorGrid;
using collectives::TensorMode;
using forecast::Operator;
using forecast::PassDirection;
using forecast::Saved;
using forecast::Tensor;

std::uint64_t Share(double bytes, double share) {
  return static_cast<std::uint64_t>(std::ceil(bytes * share));
}
std::uint64_t Share(std::uint64_t bytes, double share) {
  return share == 1 ? bytes : Share(static_cast<double>(bytes), share);
}

std::uint64_t DividedUp(std::uint64_t size, int by) {
  const auto divisor = static_cast<std::uint64_t>(by);
  return (size + divisor - 1) / divisor;
}

// Blocks travel while others are multiplied.
bool Overlaps(const TensorGrid& grid) {
  return grid.mode() == TensorMode::k2D || grid.mode() == TensorMode::k25D;
}

bool IsOneDimensional(const TensorGrid& grid) {
  return grid.mode() == TensorMode::k1D || grid.mode() == TensorMode::k1DSequence;
}

// Gathered, or step by step in SUMMA, W passes through the products of a rank along one side.
double MultipliedShare(const TensorGrid& grid) {
  const double side = grid.side();
  return grid.mode() == TensorMode::k3D ? 1 / (side * side) : 1 / side;
}

}  // namespace

GroupShape SharingGroup(const MeshSpec& mesh) {
  return {.stride = mesh.tensor, .size = std::int64_t{mesh.data} * mesh.sequence};
}
GroupShape SequenceGroup(const MeshSpec& mesh) {
  return {.stride = mesh.tensor, .size = mesh.sequence};
}
GroupShape PipelineGroup(const MeshSpec& mesh) {
  return {.stride = std::int64_t{mesh.tensor} * mesh.sequence * mesh.data, .size = mesh.pipeline};
}

std::vector<PartLinear> LinearsOf(const forecast::Model& m, Operator op, std::uint64_t tokens) {
  const auto linear = [&](LinearRole role, std::uint64_t in, std::uint64_t out) {
    return PartLinear{role, {tokens, in, out}};
  };
  switch (op) {
    case Operator::kEncoderAttention:
    case Operator::kAttention:
    case Operator::kCrossAttention:
      return {linear(LinearRole::kFirst, m.hidden, m.query_columns() + 2 * m.kv_columns()),
              linear(LinearRole::kSecond, m.query_columns(), m.hidden)};
    case Operator::kMlp:
      return {linear(LinearRole::kFirst, m.hidden, m.mlp_inputs() * m.intermediate),
              linear(LinearRole::kSecond, m.intermediate, m.hidden)};
    case Operator::kOutput:
      return {linear(LinearRole::kFirst, m.hidden, m.vocabulary)};
    case Operator::kEmbedding:
      return {linear(LinearRole::kSecond, m.vocabulary, m.hidden)};
  }
  return {};
}

MeshRankWork::MeshRankWork(const forecast::Model& model, const forecast::Job& job,
                           const MeshSpec& mesh, const forecast::ModelPart& range, double in_flight)
    : model_(model),
      job_(job),
      mesh_(mesh),
      range_(range),
      in_flight_(in_flight),
      grid_(GridOf(mesh)),
      part_(job.batch) {
  part_.sequence_length = DividedUp(part_.sequence_length, mesh.sequence);
  // Of a layer with one element in each matrix, the elements are the shares.
  const auto first = TrafficOf(grid_, LinearRole::kFirst, {1, 1, 1});
  stream_share_ = first.saved_elements;
  wide_share_ = TrafficOf(grid_, LinearRole::kSecond, {1, 1, 1}).saved_elements;
  weight_share_ = first.weight_elements;
  multiplied_share_ = MultipliedShare(grid_);
}

// A matrix by its rows where they can be cut, else by its columns; vectors, norms among them, whole
// in 1D, where all ranks of the grid have them, and by features in the others. In 1D of what is
// embedded the table of tokens alone is cut.
Tensor MeshRankWork::Cut(Tensor tensor) const {
  if (grid_.ranks() == 1) return tensor;
  const bool table = tensor.used_by == Operator::kEmbedding && tensor.rows != model_.vocabulary;
  if (IsOneDimensional(grid_) && (tensor.rows == 1 || table)) return tensor;
  if (tensor.rows == 1) {
    tensor.columns = DividedUp(tensor.columns, grid_.side());
    return tensor;
  }
  const int pieces = static_cast<int>(std::lround(1 / weight_share_));
  const bool by_columns = tensor.rows % static_cast<std::uint64_t>(pieces) != 0 &&
                          tensor.columns % static_cast<std::uint64_t>(pieces) == 0;
  std::uint64_t& side = by_columns ? tensor.columns : tensor.rows;
  side = DividedUp(side, pieces);
  return tensor;
}

std::vector<Tensor> MeshRankWork::OwnTensors() const {
  std::vector<Tensor> own;
  const bool both_ends = range_.embeds && range_.outputs;
  for (Tensor tensor : Tensors(model_)) {
    const bool shared = tensor.also_output;
    tensor.also_output = shared && both_ends;
    bool mine =
        tensor.layer >= range_.first_layer && tensor.layer < range_.first_layer + range_.layers;
    if (tensor.used_by == Operator::kEmbedding) mine = range_.embeds;
    if (tensor.used_by == Operator::kOutput) mine = range_.outputs;
    if (mine) own.push_back(Cut(tensor));
    if (!shared || both_ends || !range_.outputs) continue;
    Tensor copy = Cut(tensor);
    copy.used_by = Operator::kOutput;
    own.push_back(copy);
  }
  // A copy of the table is used last.
  std::stable_sort(own.begin(), own.end(), [](const Tensor& a, const Tensor& b) {
    return (a.used_by == Operator::kOutput) < (b.used_by == Operator::kOutput);
  });
  return own;
}

double MeshRankWork::OperationsPerSecond() const {
  return job_.hardware.flops * job_.hardware.achieved_share;
}

Saved MeshRankWork::SavedOf(Operator part) const {
  const Saved whole = SavedBytes(model_, part, part_);
  Saved saved;
  saved.input_bytes = Share(whole.input_bytes, stream_share_);
  saved.wide_bytes = Share(whole.wide_bytes, wide_share_);
  saved.rest_bytes = saved.wide_bytes + Share(whole.rest_bytes - whole.wide_bytes, stream_share_);
  return saved;
}

std::uint64_t MeshRankWork::ScratchBytes(Operator op) const {
  if (grid_.ranks() == 1 || op == Operator::kEmbedding) return 0;
  double most = 0;
  for (const PartLinear& linear : LinearsOf(model_, op, part_.tokens())) {
    // Logits come a few rows at a time.
    auto shape = linear.shape;
    if (op == Operator::kOutput) shape.tokens = std::min(shape.tokens, forecast::kLogitRows);
    most = std::max(most, ScratchElements(grid_, linear.role, shape));
  }
  return Share(most * forecast::kElementBytes, 1);
}

// What a rank keeps of what goes round: keys and values, those that come, and in the backward pass
// gradients too (training/nn/parallel/sequence/ring_attention.h).
std::uint64_t MeshRankWork::RingBytes(Operator op, PassDirection turn) const {
  if (!Rings() || !forecast::IsAttention(op)) return 0;
  constexpr double kForward = 4, kBackward = 10;
  const double own = KeyElements() / mesh_.sequence * forecast::kElementBytes;
  return Share(own * (turn == PassDirection::kForward ? kForward : kBackward), 1);
}

std::uint64_t MeshRankWork::WorkspaceOf(Operator op, PassDirection turn) const {
  const forecast::Workspace whole = forecast::WorkspaceOf(model_, op, turn, part_);
  return whole.batch_bytes + Share(whole.stream_bytes, stream_share_) +
         Share(whole.wide_bytes, wide_share_) + Share(whole.logit_bytes, 1.0 / grid_.side()) +
         ScratchBytes(op) + RingBytes(op, turn);
}

double MeshRankWork::ComputeSecondsOf(Operator op, PassDirection turn) const {
  const forecast::Hardware& device = job_.hardware;
  const double operations = Operations(model_, op, turn, job_.batch) /
                            (static_cast<double>(mesh_.tensor) * mesh_.sequence);
  const double traffic = WeightTraffic(model_, op, turn, part_) * multiplied_share_ +
                         static_cast<double>(SavedOf(op).bytes() + WorkspaceOf(op, turn));
  return std::max(operations / OperationsPerSecond(),
                  traffic / device.device_memory_bytes_per_second);
}

// In 1D the rows of the table are cut, and what ranks find is summed. In the others the table is
// gathered like a weight, and its gradient scattered.
std::vector<Exchange> MeshRankWork::EmbeddingExchanges() const {
  const PartLinear table = LinearsOf(model_, Operator::kEmbedding, part_.tokens()).front();
  if (IsOneDimensional(grid_)) return ExchangesOf(grid_, table.role, table.shape);
  std::vector<Exchange> exchanges =
      ExchangesOf(grid_, table.role, {0, table.shape.in, table.shape.out});
  for (Exchange& exchange : exchanges) {
    if (exchange.forward.elements > 0) exchange.backward = exchange.forward;
  }
  return exchanges;
}

// Of a grid's whole micro-batch, on a rank's heads.
double MeshRankWork::KeyElements() const {
  return static_cast<double>(job_.batch.tokens()) * static_cast<double>(model_.kv_columns()) /
         grid_.ranks();
}

// Products with weights, in the forward pass and on all ranks.
double MeshRankWork::LinearOperations(Operator op) const {
  double linear = 0;
  for (const PartLinear& part : LinearsOf(model_, op, job_.batch.tokens())) {
    linear += 2.0 * static_cast<double>(part.shape.tokens) * static_cast<double>(part.shape.in) *
              static_cast<double>(part.shape.out);
  }
  return linear;
}

double MeshRankWork::WeightSecondsOf(Operator op) const {
  if (op == Operator::kEmbedding) return 0;
  const double ranks = static_cast<double>(mesh_.tensor) * mesh_.sequence;
  return LinearOperations(op) / ranks / OperationsPerSecond();
}

std::uint64_t MeshRankWork::LaterBytesOf(Operator op) const {
  std::uint64_t per_token = 0;
  for (const PartLinear& part : LinearsOf(model_, op, part_.tokens())) {
    per_token += part.shape.in + part.shape.out;
  }
  // Of an embedding the gradient alone: what it reads are tokens.
  if (op == Operator::kEmbedding) per_token = model_.hidden;
  return part_.tokens() * per_token * forecast::kElementBytes;
}

// These are not what keys travel beside.
double MeshRankWork::RingSeconds(Operator op, PassDirection turn, double travel_seconds) const {
  double linear = LinearOperations(op);
  if (turn == PassDirection::kBackward) linear *= 2;
  const double ranks = static_cast<double>(mesh_.tensor) * mesh_.sequence;
  const double attention =
      (Operations(model_, op, turn, job_.batch) - linear) / ranks / OperationsPerSecond();
  const double beside = std::max(0.0, attention) * (mesh_.sequence - 1) / mesh_.sequence;
  return std::max(0.0, travel_seconds - beside);
}

MeshRankWork::Exchanged MeshRankWork::ExchangedOf(Operator op, PassDirection turn) const {
  Exchanged total;
  const auto add = [&](const Exchange& exchange, const Exchange::PassTraffic& of, bool overlaps) {
    const double bytes = of.elements * forecast::kElementBytes;
    if (of.calls == 0) return;
    const Link link = LinkOf(exchange.group, job_);
    const double seconds = bytes / link.bytes_per_second + of.messages * link.message_seconds +
                           of.calls * job_.hardware.exchange_seconds;
    total.bytes += bytes;
    (overlaps ? total.hidden_seconds : total.waited_seconds) += seconds;
  };
  // The output layer does both turns at once.
  const bool forward = turn == PassDirection::kForward || op == Operator::kOutput;
  const bool backward = turn == PassDirection::kBackward || op == Operator::kOutput;
  const auto add_all = [&](const std::vector<Exchange>& exchanges, bool overlaps) {
    for (const Exchange& exchange : exchanges) {
      // The sum over depth comes after the products.
      const bool depth = exchange.forward.calls == 0;
      if (forward) add(exchange, exchange.forward, overlaps);
      if (backward) add(exchange, exchange.backward, overlaps && !depth);
    }
  };
  if (grid_.ranks() > 1) {
    if (op == Operator::kEmbedding) {
      add_all(EmbeddingExchanges(), false);
    } else {
      for (const PartLinear& linear : LinearsOf(model_, op, part_.tokens())) {
        add_all(ExchangesOf(grid_, linear.role, linear.shape), Overlaps(grid_));
      }
    }
  }
  if (Rings() && forecast::IsAttention(op)) {
    const double before = total.waited_seconds;
    add_all({RingExchangesOf(KeyElements(), SequenceGroup(mesh_))}, false);
    total.waited_seconds = before + RingSeconds(op, turn, total.waited_seconds - before);
  } else if (mesh_.sequence > 1 && forecast::IsAttention(op)) {
    const double columns =
        static_cast<double>(2 * model_.query_columns() + 2 * model_.kv_columns());
    const double elements = static_cast<double>(job_.batch.tokens()) * columns / grid_.ranks();
    add_all({HeadExchangesOf(elements, SequenceGroup(mesh_))}, false);
  }
  return total;
}

double MeshRankWork::SecondsOf(Operator op, PassDirection turn) const {
  const double compute = ComputeSecondsOf(op, turn);
  const Exchanged exchanged = ExchangedOf(op, turn);
  return std::max(compute, exchanged.hidden_seconds) +
         std::min(compute, exchanged.hidden_seconds) / grid_.side() + exchanged.waited_seconds;
}

double MeshRankWork::ReceivedBytesOf(Operator op, PassDirection turn) const {
  return ExchangedOf(op, turn).bytes;
}

double MeshRankWork::BoundaryBytes() const {
  return static_cast<double>(part_.tokens() * model_.hidden * forecast::kElementBytes) *
         stream_share_;
}

}  // namespace geminid::parallel
