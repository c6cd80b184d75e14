#include "training/transformer/transformer.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/nn/compute.h"
#include "training/nn/later_gradients.h"
#include "training/nn/rotary_upload.h"
#include "training/transformer/attention_half.h"
#include "training/transformer/ends.h"
#include "training/transformer/micro_batch_run.h"
#include "training/transformer/mlp_half.h"
#include "training/transformer/routed_half.h"

namespace geminid::trainer {
namespace {

using zero::Pass;

template <typename T>
class TransformerOf final : public Transformer {
 public:
  TransformerOf(const ModelConfig& config, ModelParameters parameters, const Tiling& tiling,
                kernels::ThreadPool* threads, const ModelKernels& math, const SequenceCut& cut,
                LayerShare* layers, collectives::Communicator* experts)
      : config_(config),
        tiling_(tiling),
        threads_(threads),
        math_(math),
        cut_(cut),
        layers_(layers),
        experts_(experts),
        parameters_(std::move(parameters)),
        rotary_(config_) {
    embedding_ids_.push_back(parameters_.token_table);
    if (parameters_.position_table) embedding_ids_.push_back(*parameters_.position_table);
    output_ids_.push_back(parameters_.final_norm.gain);
    if (parameters_.final_norm.shift) output_ids_.push_back(*parameters_.final_norm.shift);
    output_ids_.push_back(parameters_.output.weight);
  }

  const ModelParameters& parameters() const override { return parameters_; }
  size_t BoundaryElements(size_t tokens) const override { return tokens * config_.hidden; }

  absl::StatusOr<double> TrainMicroBatch(ParameterSource& source, const MicroBatch& batch,
                                         float gradient_scale) override {
    GEMINID_RETURN_IF_ERROR(CheckMicroBatch(batch, config_.context));
    GEMINID_RETURN_IF_ERROR(source.BeginMicroBatch());
    Run run(source, math_, threads_);
    GEMINID_RETURN_IF_ERROR(PrepareTraining(run, batch));
    if (batch.stack != nullptr) {
      run.stack = batch.stack;
      run.item_bytes = ItemBytes(batch.shape);
      GEMINID_RETURN_IF_ERROR(run.stack->Begin());
    }
    GEMINID_ASSIGN_OR_RETURN(run.gradient, Scratch<T>::Allocate(run.resources, run.elements()));
    GEMINID_RETURN_IF_ERROR(RunForward(run, Pass::kForward, {}));
    GEMINID_ASSIGN_OR_RETURN(const double loss_sum, RunOutput(run, gradient_scale));
    GEMINID_RETURN_IF_ERROR(RunBackward(run, gradient_scale));
    return loss_sum;
  }

  std::vector<uint64_t> ItemBytes(const MicroBatchShape& shape) const override {
    if (experts_ != nullptr) return {};  // other ranks decide how many rows a rank's experts have
    MicroBatch batch;
    batch.shape = shape;
    const HalfContext context = ContextOf(batch);
    std::vector<uint64_t> bytes;
    for (size_t layer = 0; layer < parameters_.attention.size(); ++layer) {
      if (config_.parallel()) {
        bytes.push_back(BytesOfItem<T, KeptAttention<T>, KeptMlp<T>>(math_, context));
        continue;
      }
      bytes.push_back(BytesOfItem<T, KeptAttention<T>>(math_, context));
      bytes.push_back(BytesOfItem<T, KeptMlp<T>>(math_, context));
    }
    return bytes;
  }

  absl::StatusOr<std::unique_ptr<PassedForward>> ForwardPart(ParameterSource& source,
                                                             const MicroBatch& batch,
                                                             std::span<const float> in,
                                                             std::span<float> out) override {
    GEMINID_RETURN_IF_ERROR(CheckMicroBatch(batch, config_.context));
    auto run = std::make_unique<Run>(source, math_, threads_);
    GEMINID_RETURN_IF_ERROR(PrepareTraining(*run, batch));
    GEMINID_RETURN_IF_ERROR(RunForward(*run, Pass::kEvaluate, in));
    GEMINID_RETURN_IF_ERROR(GiveOut(*run, out));
    // What the part after goes back from, it has.
    if (!parameters_.part.outputs) run->inputs.pop_back();
    return run;
  }

  absl::StatusOr<double> BackwardPart(std::unique_ptr<PassedForward> passed, float gradient_scale,
                                      std::span<const float> out_gradient,
                                      std::span<float> in_gradient) override {
    return GoBack(static_cast<Run&>(*passed), gradient_scale, out_gradient, in_gradient);
  }

  absl::StatusOr<double> BackwardPartInput(PassedForward& passed, float gradient_scale,
                                           std::span<const float> out_gradient,
                                           std::span<float> in_gradient) override {
    Run& run = static_cast<Run&>(passed);
    run.in_halves = true;
    GEMINID_ASSIGN_OR_RETURN(const double loss_sum,
                             GoBack(run, gradient_scale, out_gradient, in_gradient));
    run.resources.later = nullptr;
    if (!parameters_.part.embeds) run.gradient.Free();
    return loss_sum;
  }

  absl::Status BackwardPartWeights(std::unique_ptr<PassedForward> passed) override {
    Run& run = static_cast<Run&>(*passed);
    for (LaterOperator& later : run.later) {
      GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(Pass::kBackward, later.ids));
      GEMINID_RETURN_IF_ERROR(later.gradients->Run(run.resources, *use));
      later.gradients.reset();
      GEMINID_RETURN_IF_ERROR(GradientsWritten(*use, later.ids));
      GEMINID_RETURN_IF_ERROR(use->Finish());
    }
    return parameters_.part.embeds ? RunEmbeddingBackward(run) : absl::OkStatus();
  }

  absl::StatusOr<double> EvaluatePart(ParameterSource& source, const MicroBatch& batch,
                                      std::span<const float> in, std::span<float> out) override {
    GEMINID_RETURN_IF_ERROR(CheckMicroBatch(batch, config_.context));
    Run run(source, math_, threads_);
    run.context = ContextOf(batch);
    GEMINID_RETURN_IF_ERROR(Prepare(run, batch));
    GEMINID_RETURN_IF_ERROR(RunForward(run, Pass::kEvaluate, in));
    GEMINID_RETURN_IF_ERROR(GiveOut(run, out));
    if (!parameters_.part.outputs) return 0;
    GEMINID_ASSIGN_OR_RETURN(auto use, source.Use(Pass::kEvaluate, output_ids_));
    GEMINID_ASSIGN_OR_RETURN(
        const double loss_sum,
        OutputLoss<T>(run.resources, run.context, parameters_, *use, run.Top(), run.targets()));
    GEMINID_RETURN_IF_ERROR(use->Finish());
    return loss_sum;
  }

  absl::StatusOr<std::unique_ptr<RememberedTokens>> Remember(ParameterSource& source,
                                                             size_t tokens) override {
    const size_t elements = tokens * config_.kv_heads * config_.head_dim();
    auto remembered = std::make_unique<Remembered>(tokens);
    const Resources resources = {source.workspace(), math_};
    for (uint64_t i = 0; i < 2 * config_.layers; ++i) {
      GEMINID_ASSIGN_OR_RETURN(auto block, Scratch<T>::Allocate(resources, elements));
      remembered->blocks.push_back(std::move(block));
    }
    return remembered;
  }

  absl::StatusOr<std::vector<float>> NextLogits(ParameterSource& source,
                                                std::span<const int32_t> tokens, size_t last,
                                                RememberedTokens* remembered) override {
    if (layers_ != nullptr) {
      return absl::UnimplementedError("a model with cut layers does not write on");
    }
    auto* const memory = static_cast<Remembered*>(remembered);
    const MicroBatch batch = {.shape = {.sequences = 1, .sequence_length = tokens.size()},
                              .tokens = tokens,
                              .targets = tokens};
    GEMINID_RETURN_IF_ERROR(CheckMicroBatch(batch, config_.context));
    if (memory != nullptr && memory->tokens + tokens.size() > config_.context) {
      return absl::InvalidArgumentError(absl::StrCat("the model's context has ", config_.context,
                                                     " tokens, not ", memory->tokens, " and ",
                                                     tokens.size(), " more"));
    }
    if (last >= tokens.size()) return absl::InvalidArgumentError("no such token in the sequence");
    if (memory != nullptr && tokens.size() > memory->most - memory->tokens) {
      return absl::InvalidArgumentError(absl::StrCat("there is room to remember ", memory->most,
                                                     " tokens, of which ", memory->tokens,
                                                     " are, not ", tokens.size(), " more"));
    }
    Run run(source, math_, threads_);
    run.resources.rows_alone = true;
    run.context = {.config = &config_, .shape = batch.shape, .tiling = tiling_};
    run.context.positions.first = memory == nullptr ? 0 : memory->tokens;
    GEMINID_RETURN_IF_ERROR(Prepare(run, batch));
    GEMINID_RETURN_IF_ERROR(RunExtend(run, memory));
    GEMINID_ASSIGN_OR_RETURN(auto use, source.Use(Pass::kEvaluate, output_ids_));
    std::vector<float> logits(config_.vocabulary);
    GEMINID_RETURN_IF_ERROR(LogitsOfToken<T>(run.resources, run.context, parameters_, *use,
                                             run.Top() + last * config_.hidden, logits));
    GEMINID_RETURN_IF_ERROR(use->Finish());
    if (memory != nullptr) memory->tokens += tokens.size();
    return logits;
  }

 private:
  using Run = MicroBatchRun<T>;

  struct Remembered final : RememberedTokens {
    explicit Remembered(size_t tokens_max) : most(tokens_max) {}
    size_t count() const override { return tokens; }

    const size_t most;
    size_t tokens = 0;
    std::vector<Scratch<T>> blocks;  // keys and values, layer by layer
  };

  absl::Status Prepare(Run& run, const MicroBatch& batch) {
    if (config_.rotary()) {
      GEMINID_ASSIGN_OR_RETURN(run.rotary,
                               rotary_.template Of<T>(run.resources, run.context.positions,
                                                      batch.shape.sequence_length));
      run.context.rotary = rotary_.Pointers(*run.rotary);
    }
    GEMINID_ASSIGN_OR_RETURN(run.tokens, UploadTokens(run.resources, layers_, batch));
    run.inputs.reserve(2 * parameters_.attention.size() + 1);
    return absl::OkStatus();
  }

  HalfContext ContextOf(const MicroBatch& batch) const {
    return {.config = &config_,
            .shape = batch.shape,
            .tiling = tiling_,
            .positions = batch.positions,
            .cut = cut_,
            .layers = layers_,
            .experts = experts_,
            .expert_capacity = config_.expert_capacity};
  }

  absl::Status PrepareTraining(Run& run, const MicroBatch& batch) {
    run.context = ContextOf(batch);
    run.context.dropout = {.dropout = batch.dropout,
                           .sequence_length = batch.shape.sequence_length,
                           .hidden = config_.hidden};
    run.keeps = batch.keeps_activations;
    run.goes_back = true;
    return Prepare(run, batch);
  }

  absl::Status TakeIn(Run& run, std::span<const float> in) {
    GEMINID_RETURN_IF_ERROR(run.Push());
    return KernelsFor<T>(run.resources)
        .UploadRounded(run.resources, in.data(), run.elements(), run.Top());
  }

  absl::Status GiveOut(Run& run, std::span<float> out) {
    if (parameters_.part.outputs) return absl::OkStatus();
    return KernelsFor<T>(run.resources)
        .DownloadWidened(run.resources, run.Top(), run.elements(), out.data());
  }

  absl::Status RunEmbedding(Run& run, Pass pass) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(pass, embedding_ids_));
    GEMINID_RETURN_IF_ERROR(run.Push());
    GEMINID_RETURN_IF_ERROR(EmbeddingForward<T>(run.resources, run.context, parameters_, *use,
                                                run.tokens.data(), run.Top()));
    GEMINID_RETURN_IF_ERROR(Drop(run, run.Top()));
    return use->Finish();
  }

  // Keys and values are remembered, or forgotten after their layer.
  absl::Status RunExtend(Run& run, Remembered* memory) {
    GEMINID_RETURN_IF_ERROR(RunEmbedding(run, Pass::kEvaluate));
    const size_t elements = run.context.shape.tokens() * config_.kv_heads * config_.head_dim();
    for (size_t layer = 0; layer < parameters_.attention.size(); ++layer) {
      Scratch<T> own;
      RememberedKeys<T> keys;
      if (memory != nullptr) {
        keys = {memory->blocks[2 * layer].data(), memory->blocks[2 * layer + 1].data()};
      } else {
        GEMINID_ASSIGN_OR_RETURN(own, Scratch<T>::Allocate(run.resources, 2 * elements));
        keys = {own.data(), own.data() + elements};
      }
      const auto extend = [&](const Resources& resources, const HalfContext& context,
                              const AttentionPlaces& places, const ParameterUse& use,
                              const SublayerForward<T>& flow, const KeptAttention<T>*) {
        return AttentionHalfExtend<T>(resources, context, places, use, flow, keys);
      };
      GEMINID_RETURN_IF_ERROR(LayerForward(run, Pass::kEvaluate, layer, extend));
    }
    return absl::OkStatus();
  }

  absl::Status RunForward(Run& run, Pass pass, std::span<const float> in) {
    GEMINID_RETURN_IF_ERROR(parameters_.part.embeds ? RunEmbedding(run, pass) : TakeIn(run, in));
    for (size_t layer = 0; layer < parameters_.attention.size(); ++layer) {
      GEMINID_RETURN_IF_ERROR(LayerForward(run, pass, layer, AttentionHalfForward<T>));
    }
    return absl::OkStatus();
  }

  template <typename Attention>
  absl::Status LayerForward(Run& run, Pass pass, size_t layer, const Attention& attention) {
    if (config_.parallel()) return BlockForward(run, pass, layer, attention);
    GEMINID_RETURN_IF_ERROR(
        HalfForward(run, pass, parameters_.attention[layer], attention, run.attention));
    return MlpForwardOf(run, pass, layer);
  }

  absl::Status LayerBackward(Run& run, size_t layer) {
    if (config_.parallel()) return BlockBackward(run, layer);
    GEMINID_RETURN_IF_ERROR(MlpBackwardOf(run, layer));
    return HalfBackward(run, parameters_.attention[layer], AttentionHalfBackward<T>, run.attention);
  }

  absl::Status MlpForwardOf(Run& run, Pass pass, size_t layer) {
    if (!config_.routed()) {
      return HalfForward(run, pass, parameters_.mlp[layer], MlpHalfForward<T>, run.mlp);
    }
    const auto forward = [&](const Resources& resources, const HalfContext& context,
                             const RoutedPlaces& places, const ParameterUse& use,
                             const SublayerForward<T>& flow, const KeptMlp<T>* kept) {
      return RoutedHalfForward<T>(resources, context, places, use, {run.source, pass}, flow.x,
                                  flow.out, kept);
    };
    return HalfForward(run, pass, parameters_.routed[layer], forward, run.mlp);
  }

  absl::Status MlpBackwardOf(Run& run, size_t layer) {
    if (!config_.routed()) {
      return HalfBackward(run, parameters_.mlp[layer], MlpHalfBackward<T>, run.mlp);
    }
    const auto backward = [&](const Resources& resources, const HalfContext& context,
                              const RoutedPlaces& places, ParameterUse& use,
                              const SublayerBackward<T>& flow, const KeptMlp<T>* kept) {
      return RoutedHalfBackward<T>(resources, context, places, use, {run.source, Pass::kBackward},
                                   flow.x, flow.dx, kept);
    };
    return HalfBackward(run, parameters_.routed[layer], backward, run.mlp);
  }

  absl::StatusOr<double> GoBack(Run& run, float gradient_scale, std::span<const float> out_gradient,
                                std::span<float> in_gradient) {
    const KernelsOf<T>& math = KernelsFor<T>(run.resources);
    GEMINID_ASSIGN_OR_RETURN(run.gradient, Scratch<T>::Allocate(run.resources, run.elements()));
    double loss_sum = 0;
    if (parameters_.part.outputs) {
      GEMINID_ASSIGN_OR_RETURN(loss_sum, RunOutput(run, gradient_scale));
    } else {
      GEMINID_RETURN_IF_ERROR(math.UploadRounded(run.resources, out_gradient.data(), run.elements(),
                                                 run.gradient.data()));
    }
    GEMINID_RETURN_IF_ERROR(RunBackward(run, gradient_scale));
    if (parameters_.part.embeds) return loss_sum;
    GEMINID_RETURN_IF_ERROR(math.DownloadWidened(run.resources, run.gradient.data(), run.elements(),
                                                 in_gradient.data()));
    return loss_sum;
  }

  // The weights of an operator that goes back. In halves nobody writes their gradients yet.
  absl::StatusOr<std::unique_ptr<ParameterUse>> UseBackward(Run& run,
                                                            std::span<const ParameterId> ids) {
    if (!run.in_halves) return run.source.Use(Pass::kBackward, ids);
    run.later.push_back({ids, std::make_unique<LaterGradients>()});
    run.resources.later = run.later.back().gradients.get();
    return run.source.Use(Pass::kEvaluate, ids);
  }
  absl::Status FinishBackward(Run& run, std::span<const ParameterId> ids, ParameterUse& use) {
    if (!run.in_halves) GEMINID_RETURN_IF_ERROR(GradientsWritten(use, ids));
    return use.Finish();
  }

  // The output layer runs forward and backward in one operator: its backward pass needs all that
  // its forward pass computes, and nothing comes in between.
  absl::StatusOr<double> RunOutput(Run& run, float gradient_scale) {
    GEMINID_ASSIGN_OR_RETURN(auto use, UseBackward(run, output_ids_));
    GEMINID_ASSIGN_OR_RETURN(
        const double loss_sum,
        OutputAndLoss<T>(run.resources, run.context, parameters_, *use, run.Top(), run.targets(),
                         gradient_scale, run.gradient.data()));
    run.inputs.pop_back();
    GEMINID_RETURN_IF_ERROR(FinishBackward(run, output_ids_, *use));
    return loss_sum;
  }

  absl::Status RunBackward(Run& run, float gradient_scale) {
    // A sequence's part in the sum over tokens, of which the layers have the mean.
    run.context.balance_scale =
        gradient_scale *
        static_cast<float>(config_.balance_loss / static_cast<double>(config_.layers) *
                           static_cast<double>(run.context.shape.sequence_length));
    for (size_t layer = parameters_.attention.size(); layer-- > 0;) {
      GEMINID_RETURN_IF_ERROR(LayerBackward(run, layer));
    }
    if (!parameters_.part.embeds || run.in_halves) return absl::OkStatus();
    return RunEmbeddingBackward(run);
  }

  absl::Status RunEmbeddingBackward(Run& run) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(Pass::kBackward, embedding_ids_));
    GEMINID_RETURN_IF_ERROR(Drop(run, run.gradient.data()));
    GEMINID_RETURN_IF_ERROR(EmbeddingBackward<T>(run.resources, run.context, parameters_, *use,
                                                 run.tokens.data(), run.gradient.data()));
    GEMINID_RETURN_IF_ERROR(GradientsWritten(*use, embedding_ids_));
    return use->Finish();
  }

  // The places of dropout: 0 is the embedding, then two for each layer of the whole model.
  uint64_t PlaceOf(const AttentionPlaces& places) const {
    return 1 + 2 * LayerOf(&places - parameters_.attention.data());
  }
  uint64_t PlaceOf(const MlpPlaces& places) const {
    return 2 + 2 * LayerOf(&places - parameters_.mlp.data());
  }
  uint64_t PlaceOf(const RoutedPlaces& places) const {
    return 2 + 2 * LayerOf(&places - parameters_.routed.data());
  }
  uint64_t LayerOf(ptrdiff_t index) const {
    return parameters_.part.first_layer + static_cast<uint64_t>(index);
  }

  absl::Status Drop(Run& run, T* x) {
    if (!run.context.dropout.dropout.active()) return absl::OkStatus();
    run.context.dropout.place = 0;
    const Matrix<const T> rows(x, run.context.shape.tokens(), config_.hidden);
    return KernelsFor<T>(run.resources).Drop(run.resources, run.context.dropout, rows, x);
  }

  template <typename Places, typename Forward, typename Kept>
  absl::Status Compute(Run& run, const Places& places, const ParameterUse& use,
                       const Forward& forward, const SublayerForward<T>& flow,
                       const std::vector<Kept>& kept) {
    run.context.dropout.place = PlaceOf(places);
    return forward(run.resources, run.context, places, use, flow,
                   run.keeps ? &kept.back() : nullptr);
  }
  template <typename Places, typename Backward, typename Kept>
  absl::Status ComputeBackward(Run& run, const Places& places, ParameterUse& use,
                               const Backward& backward, const SublayerBackward<T>& flow,
                               std::vector<Kept>& kept) {
    run.context.dropout.place = PlaceOf(places);
    GEMINID_RETURN_IF_ERROR(backward(run.resources, run.context, places, use, flow,
                                     run.keeps ? &kept.back() : nullptr));
    if (run.keeps) kept.pop_back();
    return absl::OkStatus();
  }

  // Room for what is kept beside the newest input.
  template <typename Kept>
  absl::Status Keep(Run& run, std::vector<Kept>& kept) {
    if (!run.keeps) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(Kept values, Kept::Allocate(run.ForInput(), run.context));
    kept.push_back(std::move(values));
    return absl::OkStatus();
  }
  // All that reads the input before the newest has run.
  absl::Status InputRead(Run& run) {
    const auto item = static_cast<uint32_t>(run.inputs.size() - 2);
    if (!run.goes_back) run.inputs.erase(run.inputs.begin());
    return run.stack == nullptr ? absl::OkStatus() : run.stack->Written(item);
  }
  absl::Status TopItem(Run& run) {
    return run.stack == nullptr ? absl::OkStatus() : run.stack->Top().status();
  }
  absl::Status PopInput(Run& run) {
    run.inputs.pop_back();
    return run.stack == nullptr ? absl::OkStatus() : run.stack->Pop();
  }

  template <typename Places, typename Forward, typename Kept>
  absl::Status HalfForward(Run& run, Pass pass, const Places& places, const Forward& forward,
                           std::vector<Kept>& kept) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(pass, places.all));
    const T* const x = run.Top();
    GEMINID_RETURN_IF_ERROR(Keep(run, kept));
    GEMINID_RETURN_IF_ERROR(run.Push());
    GEMINID_RETURN_IF_ERROR(
        Compute(run, places, *use, forward, {.x = x, .residual = x, .out = run.Top()}, kept));
    GEMINID_RETURN_IF_ERROR(InputRead(run));
    return use->Finish();
  }

  template <typename Places, typename Backward, typename Kept>
  absl::Status HalfBackward(Run& run, const Places& places, const Backward& backward,
                            std::vector<Kept>& kept) {
    GEMINID_ASSIGN_OR_RETURN(auto use, UseBackward(run, places.all));
    GEMINID_RETURN_IF_ERROR(TopItem(run));
    T* const gradient = run.gradient.data();
    GEMINID_RETURN_IF_ERROR(ComputeBackward(
        run, places, *use, backward,
        {.x = run.Top(), .dy = gradient, .residual = gradient, .dx = gradient}, kept));
    GEMINID_RETURN_IF_ERROR(PopInput(run));
    return FinishBackward(run, places.all, *use);
  }

  // out = x + attention(norm(x)) + mlp(norm'(x)), of which only x is kept.
  template <typename Attention>
  absl::Status BlockForward(Run& run, Pass pass, size_t layer, const Attention& attention) {
    const AttentionPlaces& first = parameters_.attention[layer];
    const MlpPlaces& second = parameters_.mlp[layer];
    const T* const x = run.Top();
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(pass, first.all));
    GEMINID_RETURN_IF_ERROR(Keep(run, run.attention));
    GEMINID_RETURN_IF_ERROR(Keep(run, run.mlp));
    GEMINID_RETURN_IF_ERROR(run.Push());
    T* const out = run.Top();
    GEMINID_RETURN_IF_ERROR(
        Compute(run, first, *use, attention, {.x = x, .residual = x, .out = out}, run.attention));
    GEMINID_RETURN_IF_ERROR(use->Finish());
    GEMINID_ASSIGN_OR_RETURN(use, run.source.Use(pass, second.all));
    GEMINID_RETURN_IF_ERROR(Compute(run, second, *use, MlpHalfForward<T>,
                                    {.x = x, .residual = out, .out = out}, run.mlp));
    GEMINID_RETURN_IF_ERROR(InputRead(run));
    return use->Finish();
  }

  // Both halves go back from the gradient of what the block gives. So what the MLP adds to it waits
  // elsewhere until attention has read it.
  absl::Status BlockBackward(Run& run, size_t layer) {
    const AttentionPlaces& first = parameters_.attention[layer];
    const MlpPlaces& second = parameters_.mlp[layer];
    T* const gradient = run.gradient.data();
    GEMINID_ASSIGN_OR_RETURN(auto use, UseBackward(run, second.all));
    GEMINID_RETURN_IF_ERROR(TopItem(run));
    GEMINID_ASSIGN_OR_RETURN(auto sum, Scratch<T>::Allocate(run.resources, run.elements()));
    GEMINID_RETURN_IF_ERROR(ComputeBackward(
        run, second, *use, MlpHalfBackward<T>,
        {.x = run.Top(), .dy = gradient, .residual = gradient, .dx = sum.data()}, run.mlp));
    GEMINID_RETURN_IF_ERROR(FinishBackward(run, second.all, *use));
    GEMINID_ASSIGN_OR_RETURN(use, UseBackward(run, first.all));
    GEMINID_RETURN_IF_ERROR(ComputeBackward(
        run, first, *use, AttentionHalfBackward<T>,
        {.x = run.Top(), .dy = gradient, .residual = sum.data(), .dx = gradient}, run.attention));
    sum.Free();
    GEMINID_RETURN_IF_ERROR(PopInput(run));
    return FinishBackward(run, first.all, *use);
  }

  const ModelConfig config_;
  const Tiling tiling_;
  kernels::ThreadPool* const threads_;
  const ModelKernels& math_;
  const SequenceCut cut_;
  LayerShare* const layers_;
  collectives::Communicator* const experts_;
  const ModelParameters parameters_;
  UploadedRotary rotary_;  // unused where the model has none
  std::vector<ParameterId> embedding_ids_;
  std::vector<ParameterId> output_ids_;
};

template <typename... Arguments>
std::unique_ptr<Transformer> Make(zero::DataType data_type, Arguments&&... arguments) {
  if (data_type == zero::DataType::kFloat32) {
    return std::make_unique<TransformerOf<float>>(std::forward<Arguments>(arguments)...);
  }
  return std::make_unique<TransformerOf<kernels::BFloat16>>(std::forward<Arguments>(arguments)...);
}

}  // namespace

std::unique_ptr<Transformer> MakeTransformerPart(const ModelConfig& config,
                                                 zero::DataType data_type, const ModelPart& part,
                                                 const Tiling& tiling, kernels::ThreadPool* threads,
                                                 const ModelKernels& math, const SequenceCut& cut,
                                                 collectives::Communicator* experts) {
  return Make(data_type, config, MakeParameters(config, part), tiling, threads, math, cut, nullptr,
              experts);
}

std::unique_ptr<Transformer> MakeTransformerShare(
    const ModelConfig& share, zero::DataType data_type, ModelParameters parameters,
    LayerShare* layers, const Tiling& tiling, kernels::ThreadPool* threads,
    const ModelKernels& math, const SequenceCut& cut) {
  return Make(data_type, share, std::move(parameters), tiling, threads, math, cut, layers, nullptr);
}

std::unique_ptr<Transformer> MakeTransformer(const ModelConfig& config, zero::DataType data_type,
                                             const Tiling& tiling, kernels::ThreadPool* threads,
                                             const ModelKernels& math) {
  return MakeTransformerPart(config, data_type, WholeModel(config), tiling, threads, math);
}

}  // namespace geminid::trainer
