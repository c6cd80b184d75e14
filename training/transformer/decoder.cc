#include "training/transformer/decoder.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/nn/compute.h"
#include "training/nn/item_workspace.h"
#include "training/nn/later_gradients.h"

namespace geminid::trainer {
namespace {

using zero::Pass;

constexpr char kNoText[] =
    "an encoder, or a model whose layers are sharded over ranks, writes no text";

template <typename T>
class Decoder final : public Transformer {
 public:
  Decoder(std::unique_ptr<DecoderLayers<T>> layers, const ModelKernels& math,
          kernels::ThreadPool* threads)
      : layers_(std::move(layers)), math_(math), threads_(threads) {
    AddToOutput(parameters().final_norm);
    if (parameters().head) {
      AddToOutput(parameters().head->dense);
      AddToOutput(parameters().head->norm);
    }
    AddToOutput(parameters().output);
  }

  const ModelParameters& parameters() const override { return layers_->parameters(); }
  size_t BoundaryElements(size_t tokens) const override { return layers_->Elements(tokens); }

  absl::StatusOr<double> TrainMicroBatch(ParameterSource& source, const MicroBatch& batch,
                                         float gradient_scale) override {
    GEMINID_RETURN_IF_ERROR(layers_->Check(batch));
    GEMINID_RETURN_IF_ERROR(source.BeginMicroBatch());
    Run run(source, math_, threads_);
    GEMINID_RETURN_IF_ERROR(PrepareTraining(run, batch));
    if (batch.stack != nullptr) {
      run.stack = batch.stack;
      run.item_bytes = ItemBytes(batch.shape);
      GEMINID_RETURN_IF_ERROR(run.stack->Begin());
    }
    GEMINID_ASSIGN_OR_RETURN(run.gradient, Scratch<T>::Allocate(run.resources, run.elements));
    GEMINID_RETURN_IF_ERROR(RunForward(run, Pass::kForward, {}));
    GEMINID_ASSIGN_OR_RETURN(const double loss_sum, RunOutput(run, gradient_scale));
    GEMINID_RETURN_IF_ERROR(RunBackward(run, gradient_scale));
    return loss_sum;
  }

  std::vector<uint64_t> ItemBytes(const MicroBatchShape& shape) const override {
    if (!layers_->capabilities().items) return {};
    MicroBatch batch;
    batch.shape = shape;
    std::vector<uint64_t> bytes;
    for (size_t layer = 0; layer < parameters().attention.size(); ++layer) {
      if (config().parallel()) {
        bytes.push_back(BytesOfItem(batch, {Kind::kAttention, Kind::kMlp}));
        continue;
      }
      bytes.push_back(BytesOfItem(batch, {Kind::kAttention}));
      bytes.push_back(BytesOfItem(batch, {Kind::kMlp}));
    }
    return bytes;
  }

  absl::StatusOr<std::unique_ptr<PassedForward>> ForwardPart(ParameterSource& source,
                                                             const MicroBatch& batch,
                                                             std::span<const float> in,
                                                             std::span<float> out) override {
    GEMINID_RETURN_IF_ERROR(layers_->Check(batch));
    auto run = std::make_unique<Run>(source, math_, threads_);
    GEMINID_RETURN_IF_ERROR(PrepareTraining(*run, batch));
    GEMINID_RETURN_IF_ERROR(RunForward(*run, Pass::kEvaluate, in));
    GEMINID_RETURN_IF_ERROR(GiveOut(*run, out));
    // The next stage starts its backward pass from this output and has its own copy.
    if (!parameters().part.outputs) run->inputs.pop_back();
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
    if (!layers_->capabilities().halves) {
      return absl::FailedPreconditionError(
          "sharded layers and encoders do not split their backward pass");
    }
    Run& run = static_cast<Run&>(passed);
    run.in_halves = true;
    GEMINID_ASSIGN_OR_RETURN(const double loss_sum,
                             GoBack(run, gradient_scale, out_gradient, in_gradient));
    run.resources.later = nullptr;
    if (!parameters().part.embeds) run.gradient.Free();
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
    return parameters().part.embeds ? RunEmbeddingBackward(run) : absl::OkStatus();
  }

  absl::StatusOr<double> EvaluatePart(ParameterSource& source, const MicroBatch& batch,
                                      std::span<const float> in, std::span<float> out) override {
    GEMINID_RETURN_IF_ERROR(layers_->Check(batch));
    Run run(source, math_, threads_);
    run.context = layers_->ContextOf(batch);
    GEMINID_RETURN_IF_ERROR(Prepare(run, batch));
    GEMINID_RETURN_IF_ERROR(RunForward(run, Pass::kEvaluate, in));
    GEMINID_RETURN_IF_ERROR(GiveOut(run, out));
    if (!parameters().part.outputs) return 0;
    GEMINID_ASSIGN_OR_RETURN(auto use, source.Use(Pass::kEvaluate, output_ids_));
    GEMINID_ASSIGN_OR_RETURN(const double loss_sum, layers_->Loss(run, *use, run.Top()));
    GEMINID_RETURN_IF_ERROR(use->Finish());
    return loss_sum;
  }

  absl::StatusOr<std::unique_ptr<KeyValueCache>> MakeKeyValueCache(ParameterSource& source,
                                                                   size_t tokens) override {
    if (!layers_->capabilities().extends) return absl::UnimplementedError(kNoText);
    const size_t elements = tokens * config().kv_columns();
    auto cache = std::make_unique<ModelKeyValueCache>(tokens);
    const Resources resources = {source.workspace(), math_};
    for (uint64_t i = 0; i < 2 * config().layers; ++i) {
      GEMINID_ASSIGN_OR_RETURN(auto block, Scratch<T>::Allocate(resources, elements));
      cache->blocks.push_back(std::move(block));
    }
    return cache;
  }

  absl::StatusOr<std::vector<float>> NextLogits(ParameterSource& source,
                                                std::span<const int32_t> tokens, size_t last,
                                                KeyValueCache* cache) override {
    if (!layers_->capabilities().extends) return absl::UnimplementedError(kNoText);
    auto* const memory = static_cast<ModelKeyValueCache*>(cache);
    const MicroBatch batch = {.shape = {.sequences = 1, .sequence_length = tokens.size()},
                              .tokens = tokens,
                              .targets = tokens};
    GEMINID_RETURN_IF_ERROR(layers_->Check(batch));
    if (memory != nullptr && memory->tokens + tokens.size() > config().context) {
      return absl::InvalidArgumentError(absl::StrCat("the model's context has ", config().context,
                                                     " tokens, not ", memory->tokens, " and ",
                                                     tokens.size(), " more"));
    }
    if (last >= tokens.size()) return absl::InvalidArgumentError("no such token in the sequence");
    if (memory != nullptr && tokens.size() > memory->most - memory->tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("the KV cache has room for ", memory->most, " tokens and holds ",
                       memory->tokens, ", so it cannot take ", tokens.size(), " more"));
    }
    Run run(source, math_, threads_);
    run.resources.rows_alone = true;
    run.context = layers_->ContextOf(batch);
    run.context.expert_capacity = 0;  // drops no token
    run.context.positions.first = memory == nullptr ? 0 : memory->tokens;
    GEMINID_RETURN_IF_ERROR(Prepare(run, batch));
    GEMINID_RETURN_IF_ERROR(RunExtend(run, memory));
    GEMINID_ASSIGN_OR_RETURN(auto use, source.Use(Pass::kEvaluate, output_ids_));
    std::vector<float> logits(config().vocabulary);
    GEMINID_RETURN_IF_ERROR(
        layers_->LogitsOfToken(run, *use, run.Top() + last * config().hidden, logits));
    GEMINID_RETURN_IF_ERROR(use->Finish());
    if (memory != nullptr) memory->tokens += tokens.size();
    return logits;
  }

 private:
  using Run = MicroBatchRun<T>;
  using Kind = Sublayer::Kind;

  struct ModelKeyValueCache final : KeyValueCache {
    explicit ModelKeyValueCache(size_t tokens_max) : most(tokens_max) {}
    size_t count() const override { return tokens; }

    const size_t most;
    size_t tokens = 0;
    std::vector<Scratch<T>> blocks;  // keys and values, layer by layer
  };

  const ModelConfig& config() const { return layers_->config(); }

  void AddToOutput(const NormPlace& norm) {
    output_ids_.push_back(norm.gain);
    if (norm.shift) output_ids_.push_back(*norm.shift);
  }
  void AddToOutput(const LinearPlace& linear) {
    output_ids_.push_back(linear.weight);
    if (linear.bias) output_ids_.push_back(*linear.bias);
  }

  // The bytes of an item of MicroBatchRun::stack: an input, and what its sublayers keep.
  uint64_t BytesOfItem(const MicroBatch& batch, std::initializer_list<Kind> kinds) const {
    ItemWorkspace counted;
    const Resources resources = {counted, math_};
    // Only the number of bytes is needed, so the errors of these allocations do not matter.
    Scratch<T>::Allocate(resources, layers_->Elements(batch.shape.tokens())).IgnoreError();
    for (const Kind kind : kinds) {
      layers_->Keep(resources, layers_->ContextOf(batch), kind).IgnoreError();
    }
    return counted.used_bytes();
  }

  absl::Status Prepare(Run& run, const MicroBatch& batch) {
    run.elements = layers_->Elements(batch.shape.tokens());
    run.inputs.reserve(2 * parameters().attention.size() + 1);
    return layers_->Begin(run, batch);
  }

  absl::Status PrepareTraining(Run& run, const MicroBatch& batch) {
    run.context = layers_->ContextOf(batch);
    run.context.dropout = {.dropout = batch.dropout,
                           .sequence_length = batch.shape.sequence_length,
                           .hidden = config().hidden};
    run.keeps = batch.keeps_activations;
    run.goes_back = true;
    return Prepare(run, batch);
  }

  absl::Status TakeIn(Run& run, std::span<const float> in) {
    GEMINID_RETURN_IF_ERROR(run.Push());
    return KernelsFor<T>(run.resources)
        .UploadRounded(run.resources, in.data(), run.elements, run.Top());
  }

  absl::Status GiveOut(Run& run, std::span<float> out) {
    if (parameters().part.outputs) return absl::OkStatus();
    return KernelsFor<T>(run.resources)
        .DownloadWidened(run.resources, run.Top(), run.elements, out.data());
  }

  absl::Status RunEmbedding(Run& run, Pass pass) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(pass, parameters().embedding));
    GEMINID_RETURN_IF_ERROR(run.Push());
    GEMINID_RETURN_IF_ERROR(layers_->Embed(run, *use, run.Top()));
    return use->Finish();
  }

  // Caches keys and values in `memory`; if `memory` is null, frees them after their layer.
  absl::Status RunExtend(Run& run, ModelKeyValueCache* memory) {
    GEMINID_RETURN_IF_ERROR(RunEmbedding(run, Pass::kEvaluate));
    const size_t elements = run.context.shape.tokens() * config().kv_columns();
    for (size_t layer = 0; layer < parameters().attention.size(); ++layer) {
      Scratch<T> own;
      if (memory != nullptr) {
        run.keys = {memory->blocks[2 * layer].data(), memory->blocks[2 * layer + 1].data()};
      } else {
        GEMINID_ASSIGN_OR_RETURN(own, Scratch<T>::Allocate(run.resources, 2 * elements));
        run.keys = {own.data(), own.data() + elements};
      }
      GEMINID_RETURN_IF_ERROR(LayerForward(run, Pass::kEvaluate, layer));
    }
    return absl::OkStatus();
  }

  absl::Status RunForward(Run& run, Pass pass, std::span<const float> in) {
    GEMINID_RETURN_IF_ERROR(parameters().part.embeds ? RunEmbedding(run, pass) : TakeIn(run, in));
    for (size_t layer = 0; layer < parameters().attention.size(); ++layer) {
      GEMINID_RETURN_IF_ERROR(LayerForward(run, pass, layer));
    }
    return absl::OkStatus();
  }

  absl::Status LayerForward(Run& run, Pass pass, size_t layer) {
    if (config().parallel()) return BlockForward(run, pass, layer);
    GEMINID_RETURN_IF_ERROR(RunSublayer(run, pass, {Kind::kAttention, layer}));
    return RunSublayer(run, pass, {Kind::kMlp, layer});
  }

  absl::Status LayerBackward(Run& run, size_t layer) {
    if (config().parallel()) return BlockBackward(run, layer);
    GEMINID_RETURN_IF_ERROR(RunSublayerBackward(run, {Kind::kMlp, layer}));
    return RunSublayerBackward(run, {Kind::kAttention, layer});
  }

  absl::StatusOr<double> GoBack(Run& run, float gradient_scale, std::span<const float> out_gradient,
                                std::span<float> in_gradient) {
    const KernelsOf<T>& math = KernelsFor<T>(run.resources);
    GEMINID_ASSIGN_OR_RETURN(run.gradient, Scratch<T>::Allocate(run.resources, run.elements));
    double loss_sum = 0;
    if (parameters().part.outputs) {
      GEMINID_ASSIGN_OR_RETURN(loss_sum, RunOutput(run, gradient_scale));
    } else {
      GEMINID_RETURN_IF_ERROR(math.UploadRounded(run.resources, out_gradient.data(), run.elements,
                                                 run.gradient.data()));
    }
    GEMINID_RETURN_IF_ERROR(RunBackward(run, gradient_scale));
    if (parameters().part.embeds) return loss_sum;
    GEMINID_RETURN_IF_ERROR(
        math.DownloadWidened(run.resources, run.gradient.data(), run.elements, in_gradient.data()));
    return loss_sum;
  }

  // The weights for an operator's backward pass. The first of two halves writes no gradients of
  // weights.
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

  // The output layer runs forward and backward in one operator: its backward pass needs all values
  // of its forward pass, and no other operator runs in between.
  absl::StatusOr<double> RunOutput(Run& run, float gradient_scale) {
    GEMINID_ASSIGN_OR_RETURN(auto use, UseBackward(run, output_ids_));
    GEMINID_ASSIGN_OR_RETURN(const double loss_sum,
                             layers_->LossBackward(run, *use, run.Top(), gradient_scale));
    run.inputs.pop_back();
    GEMINID_RETURN_IF_ERROR(FinishBackward(run, output_ids_, *use));
    return loss_sum;
  }

  absl::Status RunBackward(Run& run, float gradient_scale) {
    // The loss is a sum over tokens, so a sequence counts sequence_length times. The balance loss
    // is the mean over the layers.
    run.context.balance_scale =
        gradient_scale *
        static_cast<float>(config().balance_loss / static_cast<double>(config().layers) *
                           static_cast<double>(run.context.shape.sequence_length));
    for (size_t layer = parameters().attention.size(); layer-- > 0;) {
      GEMINID_RETURN_IF_ERROR(LayerBackward(run, layer));
    }
    if (!parameters().part.embeds || run.in_halves) return absl::OkStatus();
    return RunEmbeddingBackward(run);
  }

  absl::Status RunEmbeddingBackward(Run& run) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(Pass::kBackward, parameters().embedding));
    GEMINID_RETURN_IF_ERROR(layers_->EmbedBackward(run, *use));
    GEMINID_RETURN_IF_ERROR(GradientsWritten(*use, parameters().embedding));
    return use->Finish();
  }

  std::span<const ParameterId> IdsOf(const Sublayer& which) const {
    if (IsAttention(which.kind)) return parameters().attention[which.layer].all;
    return config().routed() ? parameters().routed[which.layer].all
                             : parameters().mlp[which.layer].all;
  }

  // The memory in which a sublayer keeps values beside the newest input; null if it keeps none.
  absl::StatusOr<const SublayerActivations*> Keep(Run& run, Kind kind) {
    if (!run.keeps) return nullptr;
    GEMINID_ASSIGN_OR_RETURN(auto kept, layers_->Keep(run.ForInput(), run.context, kind));
    return run.kept.emplace_back(std::move(kept)).get();
  }
  absl::Status ComputeBackward(Run& run, const Sublayer& which, ParameterUse& use,
                               const SublayerBackward<T>& flow) {
    GEMINID_RETURN_IF_ERROR(
        layers_->Backward(run, which, use, flow, run.keeps ? run.kept.back().get() : nullptr));
    if (run.keeps) run.kept.pop_back();
    return absl::OkStatus();
  }
  // Call this when all sublayers that read the second newest input have run.
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

  absl::Status RunSublayer(Run& run, Pass pass, const Sublayer& which) {
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(pass, IdsOf(which)));
    const T* const x = run.Top();
    GEMINID_ASSIGN_OR_RETURN(const SublayerActivations* const kept, Keep(run, which.kind));
    GEMINID_RETURN_IF_ERROR(run.Push());
    GEMINID_RETURN_IF_ERROR(
        layers_->Forward(run, pass, which, *use, {.x = x, .residual = x, .out = run.Top()}, kept));
    GEMINID_RETURN_IF_ERROR(InputRead(run));
    return use->Finish();
  }

  absl::Status RunSublayerBackward(Run& run, const Sublayer& which) {
    const std::span<const ParameterId> ids = IdsOf(which);
    GEMINID_ASSIGN_OR_RETURN(auto use, UseBackward(run, ids));
    GEMINID_RETURN_IF_ERROR(TopItem(run));
    T* const gradient = run.gradient.data();
    GEMINID_RETURN_IF_ERROR(ComputeBackward(
        run, which, *use, {.x = run.Top(), .dy = gradient, .residual = gradient, .dx = gradient}));
    GEMINID_RETURN_IF_ERROR(PopInput(run));
    return FinishBackward(run, ids, *use);
  }

  // out = x + attention(norm(x)) + mlp(norm'(x)); of the block's values only x is stored.
  absl::Status BlockForward(Run& run, Pass pass, size_t layer) {
    const Sublayer first = {Kind::kAttention, layer}, second = {Kind::kMlp, layer};
    const T* const x = run.Top();
    GEMINID_ASSIGN_OR_RETURN(auto use, run.source.Use(pass, IdsOf(first)));
    GEMINID_ASSIGN_OR_RETURN(const SublayerActivations* const of_first, Keep(run, first.kind));
    GEMINID_ASSIGN_OR_RETURN(const SublayerActivations* const of_second, Keep(run, second.kind));
    GEMINID_RETURN_IF_ERROR(run.Push());
    T* const out = run.Top();
    GEMINID_RETURN_IF_ERROR(
        layers_->Forward(run, pass, first, *use, {.x = x, .residual = x, .out = out}, of_first));
    GEMINID_RETURN_IF_ERROR(use->Finish());
    GEMINID_ASSIGN_OR_RETURN(use, run.source.Use(pass, IdsOf(second)));
    GEMINID_RETURN_IF_ERROR(layers_->Forward(run, pass, second, *use,
                                             {.x = x, .residual = out, .out = out}, of_second));
    GEMINID_RETURN_IF_ERROR(InputRead(run));
    return use->Finish();
  }

  // Both sublayers start from the gradient of the block's output. So a second buffer takes the
  // MLP's contribution until attention has read that gradient.
  absl::Status BlockBackward(Run& run, size_t layer) {
    const Sublayer first = {Kind::kAttention, layer}, second = {Kind::kMlp, layer};
    T* const gradient = run.gradient.data();
    GEMINID_ASSIGN_OR_RETURN(auto use, UseBackward(run, IdsOf(second)));
    GEMINID_RETURN_IF_ERROR(TopItem(run));
    GEMINID_ASSIGN_OR_RETURN(auto sum, Scratch<T>::Allocate(run.resources, run.elements));
    GEMINID_RETURN_IF_ERROR(
        ComputeBackward(run, second, *use,
                        {.x = run.Top(), .dy = gradient, .residual = gradient, .dx = sum.data()}));
    GEMINID_RETURN_IF_ERROR(FinishBackward(run, IdsOf(second), *use));
    GEMINID_ASSIGN_OR_RETURN(use, UseBackward(run, IdsOf(first)));
    GEMINID_RETURN_IF_ERROR(
        ComputeBackward(run, first, *use,
                        {.x = run.Top(), .dy = gradient, .residual = sum.data(), .dx = gradient}));
    sum.Free();
    GEMINID_RETURN_IF_ERROR(PopInput(run));
    return FinishBackward(run, IdsOf(first), *use);
  }

  const std::unique_ptr<DecoderLayers<T>> layers_;
  const ModelKernels& math_;
  kernels::ThreadPool* const threads_;
  std::vector<ParameterId> output_ids_;
};

}  // namespace

template <typename T>
std::unique_ptr<Transformer> MakeDecoder(std::unique_ptr<DecoderLayers<T>> layers,
                                         const ModelKernels& math, kernels::ThreadPool* threads) {
  return std::make_unique<Decoder<T>>(std::move(layers), math, threads);
}
template std::unique_ptr<Transformer> MakeDecoder(std::unique_ptr<DecoderLayers<float>>,
                                                  const ModelKernels&, kernels::ThreadPool*);
template std::unique_ptr<Transformer> MakeDecoder(std::unique_ptr<DecoderLayers<kernels::BFloat16>>,
                                                  const ModelKernels&, kernels::ThreadPool*);

}  // namespace geminid::trainer
