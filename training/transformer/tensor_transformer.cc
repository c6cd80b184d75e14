#include "training/transformer/tensor_transformer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/nn/workspace_memory.h"
#include "training/transformer/tensor_half.h"
#include "training/transformer/tensor_layers.h"

namespace geminid::trainer {
namespace {

using collectives::Range;
using zero::Pass;

// What a half leaves for its backward pass, beside its input.
struct KeptHalf {
  Floats statistics, normed, inner;
};

template <typename Element>
std::span<Element> Cut(std::span<Element> all, const Range& range) {
  return all.subspan(range.begin, range.count);
}

void Add(std::span<const float> from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

class TensorTransformer final : public Transformer {
 public:
  TensorTransformer(const ModelConfig& config, const MicroBatchShape& shape,
                    const TensorParameters& blocks, const TensorSurroundings& around)
      : config_(config),
        shape_(shape),
        pieces_(around.pieces),
        blocks_(blocks),
        scratch_(around.threads, memory_),
        exchange_(around.groups.grid(), around.ranks),
        has_loss_(around.groups.rank() == 0) {
    Describe();
  }

  absl::Status Prepare(collectives::TensorGroups& groups) {
    GEMINID_ASSIGN_OR_RETURN(layers_,
                             TensorLayers::Make(config_, shape_, pieces_, groups, scratch_));
    return absl::OkStatus();
  }

  const ModelParameters& parameters() const override { return described_; }
  size_t BoundaryElements(size_t /*tokens*/) const override { return elements(); }

  absl::StatusOr<double> TrainMicroBatch(ParameterSource& source, const MicroBatch& batch,
                                         float gradient_scale) override {
    GEMINID_RETURN_IF_ERROR(Check(batch));
    GEMINID_RETURN_IF_ERROR(source.BeginMicroBatch());
    Run run(source, batch, memory_);
    run.goes_back = true;
    run.keeps = batch.keeps_activations;
    GEMINID_ASSIGN_OR_RETURN(run.gradient, Floats::Allocate(run.resources, elements()));
    GEMINID_RETURN_IF_ERROR(RunForward(run, Pass::kForward, {}));
    GEMINID_ASSIGN_OR_RETURN(const double loss, RunOutput(run, gradient_scale));
    GEMINID_RETURN_IF_ERROR(RunBackward(run));
    return loss;
  }

  absl::StatusOr<std::unique_ptr<PassedForward>> ForwardPart(ParameterSource& source,
                                                             const MicroBatch& batch,
                                                             std::span<const float> in,
                                                             std::span<float> out) override {
    GEMINID_RETURN_IF_ERROR(Check(batch));
    auto run = std::make_unique<Run>(source, batch, memory_);
    run->goes_back = true;
    run->keeps = batch.keeps_activations;
    GEMINID_RETURN_IF_ERROR(RunForward(*run, Pass::kEvaluate, in));
    if (blocks_.part.outputs) return run;
    std::ranges::copy(run->Top(), out.begin());
    run->inputs.pop_back();  // the part after has it
    return run;
  }

  // The layers' exchanges give both halves at once.
  absl::StatusOr<double> BackwardPartInput(PassedForward& /*passed*/, float /*gradient_scale*/,
                                           std::span<const float> /*out_gradient*/,
                                           std::span<float> /*in_gradient*/) override {
    return absl::FailedPreconditionError("cut layers go back in one piece");
  }
  absl::Status BackwardPartWeights(std::unique_ptr<PassedForward> /*passed*/) override {
    return absl::FailedPreconditionError("cut layers go back in one piece");
  }

  absl::StatusOr<double> BackwardPart(std::unique_ptr<PassedForward> passed, float gradient_scale,
                                      std::span<const float> out_gradient,
                                      std::span<float> in_gradient) override {
    Run& run = static_cast<Run&>(*passed);
    GEMINID_ASSIGN_OR_RETURN(run.gradient, Floats::Allocate(run.resources, elements()));
    double loss = 0;
    if (blocks_.part.outputs) {
      GEMINID_ASSIGN_OR_RETURN(loss, RunOutput(run, gradient_scale));
    } else {
      std::ranges::copy(out_gradient, run.gradient.all().begin());
    }
    GEMINID_RETURN_IF_ERROR(RunBackward(run));
    if (!blocks_.part.embeds) std::ranges::copy(run.gradient.all(), in_gradient.begin());
    return loss;
  }

  absl::StatusOr<double> EvaluatePart(ParameterSource& source, const MicroBatch& batch,
                                      std::span<const float> in, std::span<float> out) override {
    GEMINID_RETURN_IF_ERROR(Check(batch));
    Run run(source, batch, memory_);
    GEMINID_RETURN_IF_ERROR(RunForward(run, Pass::kEvaluate, in));
    if (blocks_.part.outputs) return EvaluateOutput(run);
    std::ranges::copy(run.Top(), out.begin());
    return 0;
  }

  absl::StatusOr<std::unique_ptr<RememberedTokens>> Remember(ParameterSource& /*source*/,
                                                             size_t /*tokens*/) override {
    return absl::UnimplementedError("a model with cut layers does not remember tokens");
  }
  absl::StatusOr<std::vector<float>> NextLogits(ParameterSource& /*source*/,
                                                std::span<const int32_t> /*tokens*/,
                                                size_t /*last*/,
                                                RememberedTokens* /*remembered*/) override {
    return absl::UnimplementedError("a model with cut layers does not write on");
  }

 private:
  // One micro-batch. Members are destroyed in reverse order, so the workspace is a stack.
  struct Run final : PassedForward {
    // `memory` is the layers', and the source's workspace from now on.
    Run(ParameterSource& parameter_source, const MicroBatch& batch, WorkspaceMemory& memory)
        : source(parameter_source),
          resources{parameter_source.workspace(), HostKernels()},
          ids(batch.tokens.begin(), batch.tokens.end()),
          targets(batch.targets.begin(), batch.targets.end()) {
      memory.Bind(source.workspace());
    }

    ParameterSource& source;
    Resources resources;
    const std::vector<int32_t> ids, targets;  // of the whole micro-batch
    Floats gradient;                          // of the residual stream
    std::vector<Floats> inputs;               // of each half, and of the output layer
    bool goes_back = false;                   // else an input is given back when its half has run
    bool keeps = false;
    std::vector<KeptHalf> kept;  // of each half, where they are kept

    std::span<float> Top() const { return inputs.back().all(); }
  };

  // What runs a half: attention or an MLP.
  template <typename Layer>
  struct Running {
    const TensorHalf& half;
    Layer& layer;
  };

  // The parameters, as others know those of a whole model.
  void Describe() {
    described_.part = blocks_.part;
    for (const TensorBlock& block : blocks_.blocks) described_.specs.push_back(block.spec);
    described_.token_table = blocks_.token_table;
    described_.position_table = blocks_.position_table;
    for (const TensorHalf& half : blocks_.attention) {
      described_.attention.emplace_back().all = half.all;
    }
    for (const TensorHalf& half : blocks_.mlp) described_.mlp.emplace_back().all = half.all;
    described_.final_norm = blocks_.final_norm;
    described_.output.weight = blocks_.output;
    embedding_ids_.push_back(blocks_.token_table);
    if (blocks_.position_table) embedding_ids_.push_back(*blocks_.position_table);
    output_ids_.push_back(blocks_.final_norm.gain);
    if (blocks_.final_norm.shift) output_ids_.push_back(*blocks_.final_norm.shift);
    output_ids_.push_back(blocks_.output);
    for (size_t sequence = 0; sequence < shape_.sequences; ++sequence) {
      for (const Positions::Run& run : pieces_.positions.RunsOf(shape_.sequence_length)) {
        for (size_t i = 0; i < run.count; ++i) {
          positions_.push_back(static_cast<int32_t>(run.position + i));
        }
      }
    }
  }

  // Of the residual stream that this rank has.
  size_t elements() const { return layers_.norm->blocks().x.elements(); }

  absl::Status Check(const MicroBatch& batch) const {
    const size_t tokens = shape_.tokens();
    if (batch.shape.sequences == shape_.sequences &&
        batch.shape.sequence_length == shape_.sequence_length && batch.tokens.size() == tokens &&
        batch.targets.size() == tokens && batch.positions == pieces_.positions) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the layers are cut for micro-batches of ", shape_.sequences, " sequences of ",
                     shape_.sequence_length, " tokens from ", pieces_.positions.first,
                     " on; one came with ", batch.shape.sequences, " of ",
                     batch.shape.sequence_length, " from ", batch.positions.first, " on"));
  }

  std::span<const float> Value(const ParameterUse& use, std::optional<ParameterId> id) const {
    return ValuesOf(use, blocks_, id);
  }

  absl::Status Push(Run& run) {
    GEMINID_ASSIGN_OR_RETURN(Floats input, Floats::Allocate(run.resources, elements()));
    run.inputs.push_back(std::move(input));
    return absl::OkStatus();
  }

  absl::Status RunEmbedding(Run& run, Pass pass) {
    GEMINID_RETURN_IF_ERROR(Push(run));
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(pass, embedding_ids_));
    const Range& mine = layers_.tokens->blocks().ids;
    GEMINID_RETURN_IF_ERROR(layers_.tokens->Forward(Cut(std::span(run.ids), mine),
                                                    Value(*use, blocks_.token_table), run.Top()));
    if (blocks_.position_table) {
      GEMINID_ASSIGN_OR_RETURN(const Floats more, Floats::Allocate(run.resources, elements()));
      GEMINID_RETURN_IF_ERROR(
          layers_.positions->Forward(Cut(std::span<const int32_t>(positions_), mine),
                                     Value(*use, blocks_.position_table), more.all()));
      Add(more.all(), run.Top());
    }
    return use->Finish();
  }

  absl::Status RunForward(Run& run, Pass pass, std::span<const float> in) {
    if (blocks_.part.embeds) {
      GEMINID_RETURN_IF_ERROR(RunEmbedding(run, pass));
    } else {
      GEMINID_RETURN_IF_ERROR(Push(run));
      std::ranges::copy(in, run.Top().begin());
    }
    for (size_t layer = 0; layer < blocks_.mlp.size(); ++layer) {
      GEMINID_RETURN_IF_ERROR(
          HalfForward(run, pass, Running{blocks_.attention[layer], *layers_.attention}));
      GEMINID_RETURN_IF_ERROR(HalfForward(run, pass, Running{blocks_.mlp[layer], *layers_.mlp}));
    }
    return absl::OkStatus();
  }

  template <typename Layer>
  absl::StatusOr<KeptHalf> AllocateKept(const Run& run, const Layer& layer) {
    KeptHalf kept;
    GEMINID_ASSIGN_OR_RETURN(kept.statistics,
                             Floats::Allocate(run.resources, layers_.norm->statistics()));
    GEMINID_ASSIGN_OR_RETURN(kept.normed, Floats::Allocate(run.resources, elements()));
    GEMINID_ASSIGN_OR_RETURN(kept.inner, Floats::Allocate(run.resources, layer.kept()));
    return kept;
  }

  // y = layer(norm(x)).
  template <typename Layer>
  absl::Status Compute(const Run& run, const ParameterUse& use, const Running<Layer>& running,
                       std::span<const float> x, const KeptHalf& kept, std::span<float> y) {
    const TensorHalf& half = running.half;
    GEMINID_RETURN_IF_ERROR(layers_.norm->Forward(x, Value(use, half.norm.gain),
                                                  Value(use, half.norm.shift),
                                                  kept.statistics.all(), kept.normed.all()));
    GEMINID_ASSIGN_OR_RETURN(const HalfValues values,
                             HalfValues::Of(run.resources, use, blocks_, half));
    return running.layer.Forward(kept.normed.all(), {values.w1, values.b1, values.w2, values.b2},
                                 kept.inner.all(), y);
  }

  template <typename Layer>
  absl::Status HalfForward(Run& run, Pass pass, const Running<Layer>& running) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(pass, running.half.all));
    const std::span<const float> x = run.Top();
    if (run.keeps) {
      GEMINID_ASSIGN_OR_RETURN(KeptHalf kept, AllocateKept(run, running.layer));
      run.kept.push_back(std::move(kept));
    }
    GEMINID_RETURN_IF_ERROR(Push(run));
    {
      KeptHalf passing;
      if (!run.keeps) {
        GEMINID_ASSIGN_OR_RETURN(passing, AllocateKept(run, running.layer));
      }
      const KeptHalf& kept = run.keeps ? run.kept.back() : passing;
      GEMINID_RETURN_IF_ERROR(Compute(run, *use, running, x, kept, run.Top()));
    }
    Add(x, run.Top());
    if (!run.goes_back) run.inputs.erase(run.inputs.begin());
    return use->Finish();
  }

  template <typename Layer>
  absl::Status HalfBackward(Run& run, const Running<Layer>& running) {
    const TensorHalf& half = running.half;
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(Pass::kBackward, half.all));
    const std::span<const float> x = run.Top();
    GEMINID_ASSIGN_OR_RETURN(const Floats dn, Floats::Allocate(run.resources, elements()));
    {
      KeptHalf again;
      if (!run.keeps) {
        GEMINID_ASSIGN_OR_RETURN(again, AllocateKept(run, running.layer));
        GEMINID_RETURN_IF_ERROR(Compute(run, *use, running, x, again, dn.all()));
      }
      const KeptHalf& kept = run.keeps ? run.kept.back() : again;
      GEMINID_RETURN_IF_ERROR(LayerBackward(run, *use, running, x, kept, dn.all()));
    }
    Add(dn.all(), run.gradient.all());
    if (run.keeps) run.kept.pop_back();
    run.inputs.pop_back();
    return use->Finish();
  }

  // Of what is added to the stream: dn is the gradient of x through it.
  template <typename Layer>
  absl::Status LayerBackward(const Run& run, ParameterUse& use, const Running<Layer>& running,
                             std::span<const float> x, const KeptHalf& kept, std::span<float> dn) {
    const TensorHalf& half = running.half;
    GEMINID_ASSIGN_OR_RETURN(const HalfGradients gradients,
                             HalfGradients::Allocate(run.resources, blocks_, half));
    {
      GEMINID_ASSIGN_OR_RETURN(const HalfValues values,
                               HalfValues::Of(run.resources, use, blocks_, half));
      GEMINID_RETURN_IF_ERROR(running.layer.Backward(
          kept.normed.all(), {values.w1, values.b1, values.w2, values.b2}, kept.inner.all(),
          run.gradient.all(), {dn, gradients.w1, gradients.b1, gradients.w2, gradients.b2}));
    }
    GEMINID_RETURN_IF_ERROR(gradients.Give(use, blocks_, half));
    return NormBackward(run, use, half.norm, x, kept.statistics, dn, dn);
  }

  // `dx` may be `dy`.
  absl::Status NormBackward(const Run& run, ParameterUse& use, const NormPlace& place,
                            std::span<const float> x, const Floats& statistics,
                            std::span<const float> dy, std::span<float> dx) {
    const size_t count = layers_.norm->blocks().parameter.count;
    GEMINID_ASSIGN_OR_RETURN(const Floats gradients,
                             Floats::Allocate(run.resources, place.shift ? 2 * count : count));
    const std::span<float> gain = gradients.part(0, count);
    const std::span<float> shift = gradients.all().subspan(count);
    GEMINID_RETURN_IF_ERROR(layers_.norm->Backward(x, Value(use, place.gain), statistics.all(), dy,
                                                   {.x = dx, .gamma = gain, .beta = shift}));
    GEMINID_RETURN_IF_ERROR(Give(use, place.gain, gain));
    return place.shift ? Give(use, *place.shift, shift) : absl::OkStatus();
  }

  // The norm before the output layer, and the logits.
  struct Output {
    Floats statistics, normed;
    Floats table;  // of the rank across, where the output layer needs that
    Floats logits, of_loss;
    std::span<const float> weight;
  };

  absl::StatusOr<Output> ComputeOutput(const Run& run, const ParameterUse& use) {
    Output output;
    const auto take = [&](size_t count, Floats* floats) {
      GEMINID_ASSIGN_OR_RETURN(*floats, Floats::Allocate(run.resources, count));
      return absl::OkStatus();
    };
    GEMINID_RETURN_IF_ERROR(take(layers_.norm->statistics(), &output.statistics));
    GEMINID_RETURN_IF_ERROR(take(elements(), &output.normed));
    GEMINID_RETURN_IF_ERROR(take(layers_.logits->blocks().y.elements(), &output.logits));
    GEMINID_RETURN_IF_ERROR(take(layers_.loss->statistics(), &output.of_loss));
    output.weight = Value(use, blocks_.output);
    if (is_exchanged()) {
      GEMINID_RETURN_IF_ERROR(take(output.weight.size(), &output.table));
      GEMINID_RETURN_IF_ERROR(exchange_.Across(output.weight, output.table.all()));
      output.weight = output.table.all();
    }
    const NormPlace& norm = blocks_.final_norm;
    GEMINID_RETURN_IF_ERROR(layers_.norm->Forward(run.Top(), Value(use, norm.gain),
                                                  Value(use, norm.shift), output.statistics.all(),
                                                  output.normed.all()));
    GEMINID_RETURN_IF_ERROR(
        layers_.logits->Forward(output.normed.all(), output.weight, {}, output.logits.all()));
    return output;
  }

  bool is_exchanged() const { return config_.tied_output() && exchange_.is_needed(); }

  absl::StatusOr<double> Loss(const Run& run, const Output& output) {
    const auto targets = Cut(std::span(run.targets), layers_.loss->block().rows);
    GEMINID_ASSIGN_OR_RETURN(
        const auto loss, layers_.loss->Forward(output.logits.all(), targets, output.of_loss.all()));
    return has_loss_ ? loss.sum : 0;
  }

  absl::StatusOr<double> EvaluateOutput(const Run& run) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(Pass::kEvaluate, output_ids_));
    GEMINID_ASSIGN_OR_RETURN(const Output output, ComputeOutput(run, *use));
    GEMINID_ASSIGN_OR_RETURN(const double loss, Loss(run, output));
    GEMINID_RETURN_IF_ERROR(use->Finish());
    return loss;
  }

  // Forward and backward in one operator: nothing comes in between.
  absl::StatusOr<double> RunOutput(Run& run, float gradient_scale) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(Pass::kBackward, output_ids_));
    double loss = 0;
    {
      GEMINID_ASSIGN_OR_RETURN(const Output output, ComputeOutput(run, *use));
      GEMINID_ASSIGN_OR_RETURN(loss, Loss(run, output));
      GEMINID_RETURN_IF_ERROR(OutputBackward(run, *use, output, gradient_scale));
    }
    run.inputs.pop_back();
    GEMINID_RETURN_IF_ERROR(use->Finish());
    return loss;
  }

  absl::Status OutputBackward(Run& run, ParameterUse& use, const Output& output,
                              float gradient_scale) {
    const auto targets = Cut(std::span(run.targets), layers_.loss->block().rows);
    const std::span<float> logits = output.logits.all();
    GEMINID_RETURN_IF_ERROR(
        layers_.loss->Backward(logits, targets, output.of_loss.all(), gradient_scale, logits));
    GEMINID_ASSIGN_OR_RETURN(const Floats dw,
                             Floats::Allocate(run.resources, output.weight.size()));
    const std::span<float> gradient = run.gradient.all();
    GEMINID_RETURN_IF_ERROR(layers_.logits->Backward(output.normed.all(), output.weight, logits,
                                                     {.x = gradient, .w = dw.all(), .bias = {}}));
    if (is_exchanged()) {  // the block that the rank across keeps
      GEMINID_RETURN_IF_ERROR(exchange_.Across(dw.all(), output.table.all()));
    }
    GEMINID_RETURN_IF_ERROR(
        Give(use, blocks_.output, is_exchanged() ? output.table.all() : dw.all()));
    return NormBackward(run, use, blocks_.final_norm, run.Top(), output.statistics, gradient,
                        gradient);
  }

  absl::Status RunBackward(Run& run) {
    for (size_t layer = blocks_.mlp.size(); layer-- > 0;) {
      GEMINID_RETURN_IF_ERROR(HalfBackward(run, Running{blocks_.mlp[layer], *layers_.mlp}));
      GEMINID_RETURN_IF_ERROR(
          HalfBackward(run, Running{blocks_.attention[layer], *layers_.attention}));
    }
    if (!blocks_.part.embeds) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(Pass::kBackward, embedding_ids_));
    GEMINID_RETURN_IF_ERROR(
        TableBackward(run, *use, *layers_.tokens, run.ids, blocks_.token_table));
    if (blocks_.position_table) {
      GEMINID_RETURN_IF_ERROR(
          TableBackward(run, *use, *layers_.positions, positions_, *blocks_.position_table));
    }
    return use->Finish();
  }

  absl::Status TableBackward(const Run& run, ParameterUse& use,
                             collectives::ParallelEmbedding& layer, const std::vector<int32_t>& ids,
                             ParameterId table) {
    GEMINID_ASSIGN_OR_RETURN(const Floats gradient,
                             Floats::Allocate(run.resources, layer.blocks().table.elements()));
    GEMINID_RETURN_IF_ERROR(layer.Backward(Cut(std::span(ids), layer.blocks().ids),
                                           run.gradient.all(), gradient.all()));
    return Give(use, table, gradient.all());
  }

  const ModelConfig config_;
  const MicroBatchShape shape_;
  const TensorPieces pieces_;
  const TensorParameters blocks_;
  WorkspaceMemory memory_;
  collectives::LinearScratch scratch_;
  TableExchange exchange_;
  const bool has_loss_;
  TensorLayers layers_;
  ModelParameters described_;
  std::vector<ParameterId> embedding_ids_, output_ids_;
  std::vector<int32_t> positions_;  // of each token of a micro-batch in its sequence
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> MakeTensorTransformer(
    const ModelConfig& config, const MicroBatchShape& shape, const TensorParameters& parameters,
    const TensorSurroundings& around) {
  auto model = std::make_unique<TensorTransformer>(config, shape, parameters, around);
  GEMINID_RETURN_IF_ERROR(model->Prepare(around.groups));
  return model;
}

}  // namespace geminid::trainer
