#include "training/transformer/tensor_transformer.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/nn/gpu_layer_math.h"
#include "training/nn/parallel/host_layer_math.h"
#include "training/nn/rotary_upload.h"
#include "training/nn/workspace_memory.h"
#include "training/transformer/decoder.h"
#include "training/transformer/ends.h"
#include "training/transformer/tensor_layers.h"
#include "training/transformer/tensor_sublayer.h"

namespace geminid::trainer {
namespace {

using collectives::Converted;
using collectives::ElementBlock;
using collectives::FloatBlock;
using collectives::Range;
using collectives::RoundedResults;

template <typename T>
struct TensorSublayerActivations final : SublayerActivations {
  FloatBlock statistics;
  ElementBlock<T> normed, inner;
};

template <typename Element>
std::span<Element> Cut(std::span<Element> all, const Range& range) {
  return all.subspan(range.begin, range.count);
}

// Describes the blocks in the form that is used for whole models.
ModelParameters Described(const TensorParameters& blocks) {
  ModelParameters described;
  described.part = blocks.part;
  for (const TensorBlock& block : blocks.blocks) described.specs.push_back(block.spec);
  described.token_table = blocks.token_table;
  described.position_table = blocks.position_table;
  described.embedding = {blocks.token_table};
  if (blocks.position_table) described.embedding.push_back(*blocks.position_table);
  for (const TensorSublayer& sublayer : blocks.attention)
    described.attention.emplace_back().all = sublayer.all;
  for (const TensorSublayer& sublayer : blocks.mlp) described.mlp.emplace_back().all = sublayer.all;
  described.final_norm = blocks.final_norm;
  described.output.weight = blocks.output;
  return described;
}

// A grid's layers, of micro-batches of one shape. What products read and what is kept is T. Norms,
// tables and sums are fp32.
template <typename T>
class GridLayers final : public DecoderLayers<T> {
 public:
  using typename DecoderLayers<T>::Run;
  using typename DecoderLayers<T>::Capabilities;
  using DecoderLayers<T>::config;

  GridLayers(const ModelConfig& model, const MicroBatchShape& shape, const TensorParameters& blocks,
             const TensorDependencies& around)
      : DecoderLayers<T>(model, Described(blocks)),
        shape_(shape),
        pieces_(around.pieces),
        blocks_(blocks),
        math_(MathOf(around, memory_, &gpu_)),
        scratch_(*math_, memory_),
        host_ranks_(around.ranks),
        ranks_(around.gpu ? around.gpu->ranks : host_ranks_),
        across_(around.groups.grid(), around.groups.rank()),
        has_loss_(around.groups.rank() == 0),
        rotary_(model) {
    for (size_t sequence = 0; sequence < shape_.sequences; ++sequence) {
      for (const Positions::Run& run : pieces_.positions.RunsOf(shape_.sequence_length)) {
        for (size_t i = 0; i < run.count; ++i) {
          positions_.push_back(static_cast<int32_t>(run.position + i));
        }
      }
    }
  }

  absl::Status Prepare(collectives::TensorGroups& groups) {
    GEMINID_ASSIGN_OR_RETURN(layers_,
                             TensorLayers<T>::Make(config(), shape_, pieces_, groups, scratch_));
    return absl::OkStatus();
  }

  // A layer's collectives compute all of its gradients in one call, so halves are unsupported.
  Capabilities capabilities() const override { return {.halves = false, .extends = false}; }
  size_t Elements(size_t /*tokens*/) const override { return elements(); }
  SublayerContext ContextOf(const MicroBatch& batch) const override {
    return {.config = &config(), .shape = batch.shape, .tiling = {}, .positions = batch.positions};
  }

  absl::Status Check(const MicroBatch& batch) const override {
    const size_t tokens = shape_.tokens();
    if (batch.shape.sequences == shape_.sequences &&
        batch.shape.sequence_length == shape_.sequence_length && batch.tokens.size() == tokens &&
        batch.targets.size() == tokens && batch.positions == pieces_.positions) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the layers are sharded for micro-batches of ", shape_.sequences,
                     " sequences of ", shape_.sequence_length, " tokens from ",
                     pieces_.positions.first, " on; one came with ", batch.shape.sequences, " of ",
                     batch.shape.sequence_length, " from ", batch.positions.first, " on"));
  }

  absl::Status Begin(Run& run, const MicroBatch& batch) override {
    memory_.Bind(run.source.workspace());
    if (gpu_ != nullptr) {
      gpu_->Bind(run.source.workspace());
      GEMINID_RETURN_IF_ERROR(UploadRotary(run, batch));
    }
    GEMINID_ASSIGN_OR_RETURN(run.tokens, UploadTokens(run.resources, /*layers=*/nullptr, batch));
    return absl::OkStatus();
  }

  absl::Status Embed(Run& run, const ParameterUse& use, T* x) override {
    GEMINID_ASSIGN_OR_RETURN(const auto out, Rounding(x));
    {
      GEMINID_ASSIGN_OR_RETURN(const auto table, Value(use, blocks_.token_table));
      GEMINID_RETURN_IF_ERROR(layers_.tokens->Forward(IdsOf(run), table.all(), out.all()));
    }
    if (blocks_.position_table) {
      GEMINID_ASSIGN_OR_RETURN(const FloatBlock more, Take("learned positions", elements()));
      GEMINID_ASSIGN_OR_RETURN(const auto table, Value(use, blocks_.position_table));
      GEMINID_ASSIGN_OR_RETURN(const PositionIds ids, PositionsHere(run));
      GEMINID_RETURN_IF_ERROR(layers_.positions->Forward(ids.all, table.all(), more.all()));
      GEMINID_RETURN_IF_ERROR(math_->Of<float>().AddWide(more.all(), out.all().data()));
    }
    return out.Round();
  }
  absl::Status EmbedBackward(Run& run, ParameterUse& use) override {
    GEMINID_ASSIGN_OR_RETURN(const auto dx, Wide(run.gradient.data()));
    GEMINID_RETURN_IF_ERROR(
        TableBackward(use, *layers_.tokens, IdsOf(run), blocks_.token_table, dx.all()));
    if (!blocks_.position_table) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const PositionIds ids, PositionsHere(run));
    return TableBackward(use, *layers_.positions, ids.all, *blocks_.position_table, dx.all());
  }

  absl::StatusOr<std::unique_ptr<SublayerActivations>> Keep(const Resources& resources,
                                                            const SublayerContext& /*context*/,
                                                            Sublayer::Kind kind) const override {
    WorkspaceMemory memory(resources.workspace);
    constexpr char kWhat[] = "saved activations of a sharded layer";
    const auto take = [&](size_t elements) {
      return ElementBlock<T>::Allocate(memory, kWhat, elements);
    };
    auto kept = std::make_unique<TensorSublayerActivations<T>>();
    GEMINID_ASSIGN_OR_RETURN(kept->statistics,
                             FloatBlock::Allocate(memory, kWhat, layers_.norm->statistics()));
    GEMINID_ASSIGN_OR_RETURN(kept->normed, take(elements()));
    GEMINID_ASSIGN_OR_RETURN(
        kept->inner, take(IsAttention(kind) ? layers_.attention->kept() : layers_.mlp->kept()));
    return kept;
  }

  absl::Status Forward(Run& run, zero::Pass /*pass*/, const Sublayer& which,
                       const ParameterUse& use, const SublayerForward<T>& flow,
                       const SublayerActivations* kept) override {
    GEMINID_ASSIGN_OR_RETURN(const auto passing, RoomUnless(kept, run, which));
    GEMINID_ASSIGN_OR_RETURN(const auto out, Rounding(flow.out));
    GEMINID_RETURN_IF_ERROR(Compute(use, which, flow.x, Either(kept, passing), out.all()));
    GEMINID_RETURN_IF_ERROR(Operands().AddWide(OfStream(flow.residual), out.all().data()));
    return out.Round();
  }

  absl::Status Backward(Run& run, const Sublayer& which, ParameterUse& use,
                        const SublayerBackward<T>& flow, const SublayerActivations* kept) override {
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock dn, Take("the gradient of a norm", elements()));
    GEMINID_ASSIGN_OR_RETURN(const auto again, RoomUnless(kept, run, which));
    const TensorSublayerActivations<T>& sublayer = Either(kept, again);
    if (again != nullptr) GEMINID_RETURN_IF_ERROR(Compute(use, which, flow.x, sublayer, dn.all()));
    GEMINID_RETURN_IF_ERROR(LayersBackward(use, which, sublayer, OfStream(flow.dy), dn.all()));
    GEMINID_RETURN_IF_ERROR(
        NormBackward(use, PlacesOf(which).norm, flow.x, sublayer.statistics, dn.all()));
    GEMINID_RETURN_IF_ERROR(Operands().AddWide(OfStream(flow.residual), dn.data()));
    return Operands().Round(dn.all(), flow.dx);
  }

  absl::StatusOr<double> Loss(Run& run, const ParameterUse& use, const T* x) override {
    GEMINID_ASSIGN_OR_RETURN(const Output output, ComputeOutput(use, x));
    return LossOf(run, output);
  }

  absl::StatusOr<double> LossBackward(Run& run, ParameterUse& use, const T* x,
                                      float gradient_scale) override {
    GEMINID_ASSIGN_OR_RETURN(const Output output, ComputeOutput(use, x));
    GEMINID_ASSIGN_OR_RETURN(const double loss, LossOf(run, output));
    const std::span<float> logits = output.logits.all();
    GEMINID_RETURN_IF_ERROR(layers_.loss->Backward(logits, TargetsOf(run), output.of_loss.all(),
                                                   gradient_scale, logits));
    GEMINID_ASSIGN_OR_RETURN(const auto dx, Rounding(run.gradient.data()));
    GEMINID_RETURN_IF_ERROR(LogitsBackward(use, output, logits, dx.all()));
    GEMINID_RETURN_IF_ERROR(NormBackward(use, blocks_.final_norm, x, output.statistics, dx.all()));
    GEMINID_RETURN_IF_ERROR(dx.Round());
    return loss;
  }

 private:
  // The values of the last norm and of the output layer.
  struct Output {
    FloatBlock statistics;
    ElementBlock<T> normed;
    ElementBlock<T> table;  // of the rank across, where the output layer needs that
    FloatBlock logits, of_loss;
    std::span<const T> weight;
  };

  // `gpu` becomes the result, or null if the host computes.
  static std::unique_ptr<collectives::LayerMath> MathOf(const TensorDependencies& around,
                                                        WorkspaceMemory& memory,
                                                        GpuLayerMath** gpu) {
    *gpu = nullptr;
    if (!around.gpu) return collectives::MakeHostLayerMath(around.threads, memory);
    std::unique_ptr<GpuLayerMath> made = GpuLayerMath::Make(around.gpu->math, around.gpu->queue);
    *gpu = made.get();
    return made;
  }

  size_t elements() const { return layers_.norm->blocks().x.elements(); }
  bool is_exchanged() const { return config().tied_output() && across_.is_needed(); }
  collectives::OperandMath<T>& Operands() { return math_->template Of<T>(); }

  // The tables of the micro-batch's positions, on the GPU. `run` holds them.
  absl::Status UploadRotary(Run& run, const MicroBatch& batch) {
    if (config().family == Family::kGpt2) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(run.rotary, rotary_.template Of<T>(run.resources, batch.positions,
                                                                batch.shape.sequence_length));
    const RotaryTables tables = rotary_.Pointers(*run.rotary);
    layers_.attention->ReadTable({.cos = tables.cos, .sin = tables.sin});
    return absl::OkStatus();
  }

  // Of the residual stream, this rank's.
  template <typename Element>
  std::span<Element> OfStream(Element* data) const {
    return {data, elements()};
  }
  // The same as fp32, and what is rounded to it.
  absl::StatusOr<Converted<float>> Wide(const T* data) {
    return Converted<float>::Of(scratch_, "a residual stream in fp32", OfStream(data));
  }
  absl::StatusOr<RoundedResults<T>> Rounding(T* to) {
    return RoundedResults<T>::For(scratch_, "additions to a residual stream", OfStream(to));
  }
  absl::StatusOr<Converted<float>> Value(const ParameterUse& use, std::optional<ParameterId> id) {
    return ValuesOf<T>(scratch_, use, blocks_, id);
  }
  absl::StatusOr<FloatBlock> Take(std::string_view what, size_t elements) {
    return scratch_.Take(what, elements);
  }

  // The tokens of a micro-batch that this rank's layers read.
  std::span<const int32_t> IdsOf(const Run& run) const {
    return Cut(std::span<const int32_t>(run.tokens.data(), shape_.tokens()),
               layers_.tokens->blocks().ids);
  }
  // Their positions, in the layers' memory.
  struct PositionIds {
    Scratch<int32_t> storage;  // of a copy on the GPU
    std::span<const int32_t> all;
  };
  absl::StatusOr<PositionIds> PositionsHere(const Run& run) const {
    PositionIds ids = {.storage = {},
                       .all = Cut(std::span(positions_), layers_.tokens->blocks().ids)};
    if (gpu_ == nullptr) return ids;
    GEMINID_ASSIGN_OR_RETURN(ids.storage,
                             Scratch<int32_t>::Allocate(run.resources, ids.all.size()));
    GEMINID_RETURN_IF_ERROR(
        KernelsFor<T>(run.resources)
            .Upload(run.resources, ids.all.data(), ids.all.size_bytes(), ids.storage.data()));
    ids.all = {ids.storage.data(), ids.all.size()};
    return ids;
  }
  std::span<const int32_t> TargetsOf(const Run& run) const {
    return Cut(std::span(run.targets(), shape_.tokens()), layers_.loss->block().rows);
  }

  const TensorSublayer& PlacesOf(const Sublayer& which) const {
    return (IsAttention(which.kind) ? blocks_.attention : blocks_.mlp)[which.layer];
  }
  // Calls `call` with the tensor-parallel layers of a sublayer.
  template <typename Call>
  absl::Status With(const Sublayer& which, const Call& call) {
    return IsAttention(which.kind) ? call(*layers_.attention) : call(*layers_.mlp);
  }

  // If `kept` is null, memory for these values while the sublayer runs; else null.
  absl::StatusOr<std::unique_ptr<SublayerActivations>> RoomUnless(const SublayerActivations* kept,
                                                                  const Run& run,
                                                                  const Sublayer& which) const {
    if (kept != nullptr) return nullptr;
    return Keep(run.resources, run.context, which.kind);
  }
  static const TensorSublayerActivations<T>& Either(
      const SublayerActivations* kept, const std::unique_ptr<SublayerActivations>& room) {
    return static_cast<const TensorSublayerActivations<T>&>(kept != nullptr ? *kept : *room);
  }

  absl::Status Normalise(const ParameterUse& use, const NormPlace& place, const T* x,
                         const FloatBlock& statistics, std::span<T> normed) {
    GEMINID_ASSIGN_OR_RETURN(const auto gain, Value(use, place.gain));
    GEMINID_ASSIGN_OR_RETURN(const auto shift, Value(use, place.shift));
    if constexpr (std::is_same_v<T, float>) {
      return layers_.norm->Forward(OfStream(x), gain.all(), shift.all(), statistics.all(), normed);
    } else {
      GEMINID_ASSIGN_OR_RETURN(const FloatBlock wide, Take("a norm in fp32", elements()));
      GEMINID_RETURN_IF_ERROR(Operands().Widen(OfStream(x), wide.data()));
      GEMINID_RETURN_IF_ERROR(
          layers_.norm->Forward(wide.all(), gain.all(), shift.all(), statistics.all(), wide.all()));
      return Operands().Round(wide.all(), normed.data());
    }
  }

  // y = f(norm(x)).
  absl::Status Compute(const ParameterUse& use, const Sublayer& which, const T* x,
                       const TensorSublayerActivations<T>& kept, std::span<float> y) {
    const TensorSublayer& sublayer = PlacesOf(which);
    GEMINID_RETURN_IF_ERROR(Normalise(use, sublayer.norm, x, kept.statistics, kept.normed.all()));
    GEMINID_ASSIGN_OR_RETURN(const auto values,
                             TensorSublayerValues<T>::Of(scratch_, use, blocks_, sublayer));
    return With(which, [&](auto& layers) {
      return layers.Forward(kept.normed.all(),
                            {values.w1, values.b1.all(), values.w2, values.b2.all()},
                            kept.inner.all(), y);
    });
  }

  // dn of what the norm gave, and the gradients of the two layers.
  absl::Status LayersBackward(ParameterUse& use, const Sublayer& which,
                              const TensorSublayerActivations<T>& kept, std::span<const T> dy,
                              std::span<float> dn) {
    const TensorSublayer& sublayer = PlacesOf(which);
    GEMINID_ASSIGN_OR_RETURN(const TensorSublayerGradients gradients,
                             TensorSublayerGradients::Allocate(scratch_, blocks_, sublayer));
    {
      GEMINID_ASSIGN_OR_RETURN(const auto values,
                               TensorSublayerValues<T>::Of(scratch_, use, blocks_, sublayer));
      GEMINID_RETURN_IF_ERROR(With(which, [&](auto& layers) {
        return layers.Backward(
            kept.normed.all(), {values.w1, values.b1.all(), values.w2, values.b2.all()},
            kept.inner.all(), dy, {dn, gradients.w1, gradients.b1, gradients.w2, gradients.b2});
      }));
    }
    return gradients.Give<T>(scratch_, use, blocks_, sublayer);
  }

  // In the place of the gradient of what the norm gave, that of what it took.
  absl::Status NormBackward(ParameterUse& use, const NormPlace& place, const T* x,
                            const FloatBlock& statistics, std::span<float> gradient) {
    const size_t count = layers_.norm->blocks().parameter.count;
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock gradients,
                             Take("the gradients of a norm", place.shift ? 2 * count : count));
    const std::span<float> gain = gradients.all().first(count);
    const std::span<float> shift = gradients.all().subspan(count);
    {
      GEMINID_ASSIGN_OR_RETURN(const auto wide, Wide(x));
      GEMINID_ASSIGN_OR_RETURN(const auto values, Value(use, place.gain));
      GEMINID_RETURN_IF_ERROR(
          layers_.norm->Backward(wide.all(), values.all(), statistics.all(), gradient,
                                 {.x = gradient, .gamma = gain, .beta = shift}));
    }
    GEMINID_RETURN_IF_ERROR(Give<T>(scratch_, use, blocks_, place.gain, gain));
    return place.shift ? Give<T>(scratch_, use, blocks_, *place.shift, shift) : absl::OkStatus();
  }

  absl::StatusOr<Output> ComputeOutput(const ParameterUse& use, const T* x) {
    Output output;
    const auto take = [&]<typename Element>(size_t count, ElementBlock<Element>* block) {
      GEMINID_ASSIGN_OR_RETURN(*block, scratch_.Take<Element>("the output layer", count));
      return absl::OkStatus();
    };
    GEMINID_RETURN_IF_ERROR(take(layers_.norm->statistics(), &output.statistics));
    GEMINID_RETURN_IF_ERROR(take(elements(), &output.normed));
    GEMINID_RETURN_IF_ERROR(take(layers_.logits->blocks().y.elements(), &output.logits));
    GEMINID_RETURN_IF_ERROR(take(layers_.loss->statistics(), &output.of_loss));
    output.weight = MatrixOf<T>(use, blocks_, blocks_.output);
    if (is_exchanged()) {
      GEMINID_RETURN_IF_ERROR(take(output.weight.size(), &output.table));
      GEMINID_RETURN_IF_ERROR(ranks_.Exchange(output.weight, output.table.all(), across_.rank()));
      output.weight = output.table.all();
    }
    GEMINID_RETURN_IF_ERROR(
        Normalise(use, blocks_.final_norm, x, output.statistics, output.normed.all()));
    GEMINID_RETURN_IF_ERROR(
        layers_.logits->Forward(output.normed.all(), output.weight, {}, output.logits.all()));
    return output;
  }

  // From the gradient of the logits that of what the output layer read, and of the layer.
  absl::Status LogitsBackward(ParameterUse& use, const Output& output,
                              std::span<const float> dlogits, std::span<float> dx) {
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock dw,
                             Take("the gradient of the output layer", output.weight.size()));
    {
      GEMINID_ASSIGN_OR_RETURN(const auto dy,
                               Converted<T>::Of(scratch_, "the gradient of logits", dlogits));
      GEMINID_RETURN_IF_ERROR(layers_.logits->Backward(output.normed.all(), output.weight, dy.all(),
                                                       {.x = dx, .w = dw.all(), .bias = {}}));
    }
    const std::span<const float> mine = dw.all();
    if (!is_exchanged()) return Give<T>(scratch_, use, blocks_, blocks_.output, mine);
    // The block that the rank across keeps.
    {
      GEMINID_ASSIGN_OR_RETURN(const auto away,
                               Converted<T>::Of(scratch_, "the gradient of a table", mine));
      GEMINID_RETURN_IF_ERROR(ranks_.Exchange(away.all(), output.table.all(), across_.rank()));
    }
    GEMINID_ASSIGN_OR_RETURN(const auto here,
                             Converted<float>::Of(scratch_, "the gradient of a table",
                                                  std::span<const T>(output.table.all())));
    return Give<T>(scratch_, use, blocks_, blocks_.output, here.all());
  }

  absl::StatusOr<double> LossOf(const Run& run, const Output& output) {
    GEMINID_ASSIGN_OR_RETURN(
        const auto loss,
        layers_.loss->Forward(output.logits.all(), TargetsOf(run), output.of_loss.all()));
    return has_loss_ ? loss.sum : 0;
  }

  absl::Status TableBackward(ParameterUse& use, collectives::ParallelEmbedding& layer,
                             std::span<const int32_t> ids, ParameterId table,
                             std::span<const float> dx) {
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock gradient,
                             Take("the gradient of a table", layer.blocks().table.elements()));
    GEMINID_RETURN_IF_ERROR(layer.Backward(ids, dx, gradient.all()));
    return Give<T>(scratch_, use, blocks_, table, gradient.all());
  }

  const MicroBatchShape shape_;
  const SequenceSlice pieces_;
  const TensorParameters blocks_;
  WorkspaceMemory memory_;  // of the current micro-batch
  GpuLayerMath* gpu_;       // `math_` if a GPU computes
  const std::unique_ptr<collectives::LayerMath> math_;
  collectives::LinearScratch scratch_;
  collectives::HostAxisRanks host_ranks_;
  collectives::AxisRanks& ranks_;  // of the grid, for the layers' memory
  const RankAcross across_;
  const bool has_loss_;
  UploadedRotary rotary_;
  TensorLayers<T> layers_;
  std::vector<int32_t> positions_;  // of each token of a micro-batch in its sequence
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> MakeTensorTransformer(
    const ModelConfig& config, zero::DataType data_type, const MicroBatchShape& shape,
    const TensorParameters& parameters, const TensorDependencies& around) {
  const auto make = [&]<typename T>(T) -> absl::StatusOr<std::unique_ptr<Transformer>> {
    auto layers = std::make_unique<GridLayers<T>>(config, shape, parameters, around);
    GEMINID_RETURN_IF_ERROR(layers->Prepare(around.groups));
    return MakeDecoder<T>(std::move(layers), around.gpu ? around.gpu->math : HostKernels(),
                          /*threads=*/nullptr);
  };
  return data_type == zero::DataType::kFloat32 ? make(float{}) : make(kernels::BFloat16{});
}

}  // namespace geminid::trainer
