// Compares models in parts with the same models in one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/world.h"
#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/tiny_models.h"
#include "tests/training/nn/parallel/counting_memory.h"
#include "training/nn/parallel/sequence/ulysses_exchange.h"
#include "training/nn/parallel/sequence/zigzag.h"
#include "training/nn/sequence_ring.h"
#include "training/settings/rank_share.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {
namespace {

using zero::DataType;

std::vector<uint64_t> LayersOf(const std::vector<ModelPart>& parts) {
  std::vector<uint64_t> layers;
  for (const ModelPart& part : parts) layers.push_back(part.layers);
  return layers;
}

// A model whose layers cost 6 * (4 h^2 + 2 h i) + 12 h c each, and whose output layer costs 6 h v.
ModelConfig Costs(uint64_t layers, uint64_t vocabulary) {
  return {.family = Family::kGpt2,
          .layers = layers,
          .hidden = 2,
          .heads = 1,
          .kv_heads = 1,
          .intermediate = 4,
          .context = 1,
          .vocabulary = vocabulary};
}

TEST(SplitModel, IsByCostAndNotByNumber) {
  EXPECT_EQ(LayerFlopsPerToken(Costs(1, 1)), 6 * (16 + 16) + 24);  // 216
  EXPECT_EQ(OutputFlopsPerToken(Costs(1, 18)), 216);               // equal to a layer
  EXPECT_EQ(LayersOf(SplitModel(Costs(6, 1), 1)), (std::vector<uint64_t>{6}));
  EXPECT_EQ(LayersOf(SplitModel(Costs(6, 1), 3)), (std::vector<uint64_t>{2, 2, 2}));
  // Six layers and an output layer that costs two: four and four.
  EXPECT_EQ(LayersOf(SplitModel(Costs(6, 36), 2)), (std::vector<uint64_t>{4, 2}));
  // The output layer costs ten layers; the last stage still has one layer.
  EXPECT_EQ(LayersOf(SplitModel(Costs(6, 180), 3)), (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_EQ(LayersOf(SplitModel(Costs(4, 1), 4)), (std::vector<uint64_t>{1, 1, 1, 1}));
}

TEST(SplitModel, HasEveryLayerOnceAndTheEndsAtTheEnds) {
  const std::vector<ModelPart> parts = SplitModel(Costs(7, 36), 3);
  uint64_t next = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].first_layer, next);
    EXPECT_EQ(parts[i].embeds, i == 0);
    EXPECT_EQ(parts[i].outputs, i == 2);
    next += parts[i].layers;
  }
  EXPECT_EQ(next, 7);
  EXPECT_EQ(SplitModel(Costs(7, 36), 1)[0], WholeModel(Costs(7, 36)));
}

TEST(MakeParameters, OfParts_HaveTheNamesOfTheWholeInItsOrder) {
  for (const ModelConfig& config :
       {TinyGpt2(), Untied(TinyGpt2()), TinyOpt(), TinyLlama(), TinyMixtral(), Tied(TinyQwen3()),
        TinyGptNeox(), Tied(TinyGptNeox()), TinyBert()}) {
    std::vector<std::string> whole, parts;
    for (const ParameterSpec& spec : MakeParameters(config).specs) whole.push_back(spec.name);
    for (const ModelPart& part : SplitModel(config, 2)) {
      for (const ParameterSpec& spec : MakeParameters(config, part).specs) {
        EXPECT_EQ(spec.backward_uses, 1);
        parts.push_back(spec.name);
      }
    }
    if (config.tied_output()) {  // the last part has the table again
      EXPECT_EQ(parts.back(), whole.front());
      parts.pop_back();
    }
    EXPECT_EQ(parts, whole);
  }
}

// A model with its parameters.
struct Held {
  std::unique_ptr<Transformer> model;
  std::unique_ptr<DenseParameters> parameters;
};

Held Whole(const ModelConfig& config, DataType type) {
  Held held{MakeTransformer(config, type), nullptr};
  held.parameters =
      std::make_unique<DenseParameters>(held.model->parameters().specs, type, 1, kWorkspaceBytes);
  Stir(*held.parameters);
  return held;
}

// A part with the values of the whole model.
Held Part(const ModelConfig& config, DataType type, const ModelPart& part, Held& whole,
          const SequenceExchange& cut = {}, collectives::Communicator* experts = nullptr) {
  Held held{MakeTransformerPart(config, type, part, {}, nullptr, HostKernels(), cut, experts),
            nullptr};
  const auto& specs = held.model->parameters().specs;
  held.parameters = std::make_unique<DenseParameters>(specs, type, 1, kWorkspaceBytes);
  const auto& all = whole.model->parameters().specs;
  for (size_t p = 0; p < specs.size(); ++p) {
    for (size_t w = 0; w < all.size(); ++w) {
      if (all[w].name == specs[p].name) held.parameters->values(p) = whole.parameters->values(w);
    }
  }
  return held;
}

using Gradients = std::map<std::string, std::vector<double>>;

// Adds the gradients of a part to the sums over the parts.
void AddGradients(const Held& held, Gradients* sums) {
  for (size_t p = 0; p < held.parameters->count(); ++p) {
    const std::vector<double>& gradient = held.parameters->gradient(p);
    std::vector<double>& sum = (*sums)[held.model->parameters().specs[p].name];
    sum.resize(gradient.size());
    for (size_t i = 0; i < gradient.size(); ++i) sum[i] += gradient[i];
  }
}

void ExpectNear(const Gradients& got, const Gradients& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, values] : expected) {
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(got.at(name)[i], values[i], tolerance) << name << "[" << i << "]";
    }
  }
}

// Expects equal bits, and an empty workspace.
void ExpectGradientsOf(const Held& whole, const Held& first, const Held& last) {
  Gradients expected, got;
  AddGradients(whole, &expected);
  AddGradients(first, &got);
  AddGradients(last, &got);
  ExpectNear(got, expected, 0);
  EXPECT_EQ(first.parameters->workspace().blocks(), 0);
  EXPECT_EQ(last.parameters->workspace().blocks(), 0);
}

// Two micro-batches go forward before the first goes backward, as in a pipeline.
TEST(PartsOfTheModel, OneAfterTheOther_GiveTheBitsOfTheWhole) {
  constexpr float kScale = 0.25F;
  for (const ModelConfig& config :
       {Untied(TinyGpt2()), Untied(TinyOpt()), TinyLlama(), TinyMistral(), TinyMixtral(),
        TinyQwen3(), TinyGptNeox(), Untied(TinyBert())}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      for (const bool keeps : {false, true}) {
        Held whole = Whole(config, type);
        const std::vector<ModelPart> parts = SplitModel(config, 2);
        Held first = Part(config, type, parts[0], whole),
             last = Part(config, type, parts[1], whole);
        std::vector<Batch> batches;
        for (const uint64_t seed : {5, 6}) {
          batches.push_back(RandomBatch(config, {.sequences = 2, .sequence_length = 7}, seed));
        }
        const size_t elements = batches[0].shape.tokens() * config.hidden;
        double expected_loss = 0, loss = 0;
        std::vector<std::unique_ptr<PassedForward>> passed_first, passed_last;
        for (Held* held : {&first, &last}) ASSERT_TRUE(held->parameters->BeginMicroBatch().ok());
        for (const Batch& batch : batches) {
          MicroBatch view = batch.view();
          view.keeps_activations = keeps;
          view.dropout = {.share = 0.25, .seed = 3, .first_sample = 4};
          const auto one = whole.model->TrainMicroBatch(*whole.parameters, view, kScale);
          ASSERT_TRUE(one.ok()) << one.status();
          expected_loss += *one;
          std::vector<float> between(elements);
          auto begun = first.model->ForwardPart(*first.parameters, view, {}, between);
          ASSERT_TRUE(begun.ok()) << begun.status();
          passed_first.push_back(*std::move(begun));
          auto ended = last.model->ForwardPart(*last.parameters, view, between, {});
          ASSERT_TRUE(ended.ok()) << ended.status();
          passed_last.push_back(*std::move(ended));
        }
        for (size_t m = 0; m < batches.size(); ++m) {
          for (Held* held : {&first, &last}) ASSERT_TRUE(held->parameters->BeginMicroBatch().ok());
          std::vector<float> between(elements);
          const auto one = last.model->BackwardPart(std::move(passed_last[m]), kScale, {}, between);
          ASSERT_TRUE(one.ok()) << one.status();
          loss += *one;
          const auto none =
              first.model->BackwardPart(std::move(passed_first[m]), kScale, between, {});
          ASSERT_TRUE(none.ok()) << none.status();
          EXPECT_EQ(*none, 0);
        }
        EXPECT_EQ(loss, expected_loss);
        ExpectGradientsOf(whole, first, last);
      }
    }
  }
}

// The inputs' gradients of both micro-batches come before the weights' gradients of the first.
TEST(PartsOfTheModel, GoneBackInHalves_GiveTheBitsOfTheWhole) {
  constexpr float kScale = 0.25F;
  constexpr size_t kBatches = 2;
  for (const ModelConfig& config :
       {Untied(TinyGpt2()), TinyLlama(), TinyQwen2(), TinyQwen3(), WithFp32Norms(TinyQwen3()),
        TinyGptNeox(), InSequence(TinyGptNeox())}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      for (const bool keeps : {false, true}) {
        Held whole = Whole(config, type);
        const std::vector<ModelPart> parts = SplitModel(config, 2);
        Held first = Part(config, type, parts[0], whole),
             last = Part(config, type, parts[1], whole);
        double expected_loss = 0, loss = 0;
        std::vector<Batch> batches;
        std::vector<std::unique_ptr<PassedForward>> passed_first(kBatches), passed_last(kBatches);
        for (size_t m = 0; m < kBatches; ++m) {
          batches.push_back(RandomBatch(config, {.sequences = 2, .sequence_length = 7}, 5 + m));
        }
        std::vector<float> between(batches[0].shape.tokens() * config.hidden);
        for (size_t m = 0; m < kBatches; ++m) {
          MicroBatch view = batches[m].view();
          view.keeps_activations = keeps;
          view.dropout = {.share = 0.25, .seed = 3, .first_sample = 4};
          expected_loss += whole.model->TrainMicroBatch(*whole.parameters, view, kScale).value();
          for (Held* held : {&first, &last}) ASSERT_TRUE(held->parameters->BeginMicroBatch().ok());
          passed_first[m] = first.model->ForwardPart(*first.parameters, view, {}, between).value();
          passed_last[m] = last.model->ForwardPart(*last.parameters, view, between, {}).value();
          loss += last.model->BackwardPartInput(*passed_last[m], kScale, {}, between).value();
          EXPECT_EQ(first.model->BackwardPartInput(*passed_first[m], kScale, between, {}).value(),
                    0);
        }
        EXPECT_EQ(loss, expected_loss);
        // The workspace in use is the planned bytes, plus what each pass holds of a micro-batch
        // anyway.
        for (const auto& [held, part] : {std::pair{&first, parts[0]}, {&last, parts[1]}}) {
          const uint64_t planned =
              kBatches * LaterBytes(config, type, part, batches[0].shape, /*logit_alignment=*/1);
          EXPECT_GE(held->parameters->workspace().in_use_bytes(), planned * 9 / 10);
          EXPECT_LE(held->parameters->workspace().in_use_bytes(), planned * 3 / 2 + 16384);
        }
        for (size_t m = 0; m < kBatches; ++m) {
          for (Held* held : {&first, &last}) ASSERT_TRUE(held->parameters->BeginMicroBatch().ok());
          ASSERT_TRUE(last.model->BackwardPartWeights(std::move(passed_last[m])).ok());
          ASSERT_TRUE(first.model->BackwardPartWeights(std::move(passed_first[m])).ok());
        }
        ExpectGradientsOf(whole, first, last);
      }
    }
  }
}

TEST(PartsOfTheModel, WithATableInBoth_GiveHalfOfItsGradientEach) {
  const ModelConfig config = TinyGpt2();
  Held whole = Whole(config, DataType::kFloat32);
  const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 7}, 5);
  ASSERT_TRUE(whole.model->TrainMicroBatch(*whole.parameters, batch.view(), 1).ok());
  const std::vector<ModelPart> parts = SplitModel(config, 2);
  Held first = Part(config, DataType::kFloat32, parts[0], whole);
  Held last = Part(config, DataType::kFloat32, parts[1], whole);
  std::vector<float> between(batch.shape.tokens() * config.hidden);
  for (Held* held : {&first, &last}) ASSERT_TRUE(held->parameters->BeginMicroBatch().ok());
  auto begun = first.model->ForwardPart(*first.parameters, batch.view(), {}, between);
  auto ended = last.model->ForwardPart(*last.parameters, batch.view(), between, {});
  ASSERT_TRUE(begun.ok() && ended.ok());
  ASSERT_TRUE(last.model->BackwardPart(*std::move(ended), 1, {}, between).ok());
  ASSERT_TRUE(first.model->BackwardPart(*std::move(begun), 1, between, {}).ok());
  Gradients expected, got;
  AddGradients(whole, &expected);
  AddGradients(first, &got);
  AddGradients(last, &got);
  ExpectNear(got, expected, 1e-5);
}

TEST(PartsOfTheModel, Evaluated_GiveTheLossOfTheWhole) {
  for (const ModelConfig& config : {TinyGpt2(), TinyLlama(), TinyMixtral()}) {
    Held whole = Whole(config, DataType::kFloat32);
    const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 9}, 8);
    const auto expected = whole.model->Evaluate(*whole.parameters, batch.view());
    const std::vector<ModelPart> parts = SplitModel(config, 2);
    Held first = Part(config, DataType::kFloat32, parts[0], whole);
    Held last = Part(config, DataType::kFloat32, parts[1], whole);
    std::vector<float> between(batch.shape.tokens() * config.hidden);
    const auto none = first.model->EvaluatePart(*first.parameters, batch.view(), {}, between);
    const auto loss = last.model->EvaluatePart(*last.parameters, batch.view(), between, {});
    ASSERT_TRUE(expected.ok() && none.ok() && loss.ok());
    EXPECT_EQ(*none, 0);
    EXPECT_EQ(*loss, *expected);
  }
}

// This rank's slice of every sequence.
Batch PieceOf(const Batch& batch, const Positions& positions, size_t length) {
  Batch part{.shape = {.sequences = batch.shape.sequences, .sequence_length = length},
             .tokens = {},
             .targets = {}};
  for (size_t s = 0; s < batch.shape.sequences; ++s) {
    for (const Positions::Run& run : positions.RunsOf(length)) {
      const auto first = static_cast<ptrdiff_t>(s * batch.shape.sequence_length + run.position);
      const auto end = first + static_cast<ptrdiff_t>(run.count);
      part.tokens.insert(part.tokens.end(), batch.tokens.begin() + first,
                         batch.tokens.begin() + end);
      part.targets.insert(part.targets.end(), batch.targets.begin() + first,
                          batch.targets.begin() + end);
    }
  }
  return part;
}

// The exchange with which a rank attends, and the positions of its tokens.
struct Cut {
  std::unique_ptr<collectives::UlyssesExchange> swap = nullptr;
  std::unique_ptr<SequenceRing> ring = nullptr;
  Positions positions = {};

  SequenceExchange view() const { return {.swap = swap.get(), .ring = ring.get()}; }
};

Cut Swapped(collectives::Communicator& ranks, size_t context) {
  const auto rank = static_cast<size_t>(ranks.Rank());
  return {.swap = std::make_unique<collectives::UlyssesExchange>(&ranks),
          .positions = {.first = rank * context / static_cast<size_t>(ranks.WorldSize())}};
}

Cut InARing(collectives::Communicator& ranks, size_t context) {
  const auto rank = static_cast<size_t>(ranks.Rank());
  const collectives::Zigzag zigzag = {.sequence = context,
                                      .ranks = static_cast<size_t>(ranks.WorldSize())};
  return {.ring = SequenceRing::Create(ranks.Duplicate("ring").value(), nullptr).value(),
          .positions = {.first = zigzag.PlaceOf(rank, 0),
                        .second_half = zigzag.PlaceOf(rank, zigzag.chunk())}};
}

using MakeCut = Cut (*)(collectives::Communicator& ranks, size_t context);

// The buffers of attention's exchanges are in the workspace, too.
void ExpectWithinBounds(const ModelConfig& config, const MicroBatchShape& mine, const Cut& cut,
                        const Held& held, bool keeps) {
  uint64_t bound = WorkspaceBytesBound(config, DataType::kFloat32, mine) +
                   (keeps ? KeptBytes(config, DataType::kFloat32, mine) : 0);
  const uint64_t pieces = config.context / mine.sequence_length;
  if (cut.ring != nullptr) {
    bound += RingBytesBound(config, DataType::kFloat32, mine, pieces);
  } else {
    ModelConfig half = config;
    half.layers = 0;
    bound += UlyssesExchangeBytesBound(config, DataType::kFloat32, mine, pieces) +
             WorkspaceBytesBound(half, DataType::kFloat32,
                                 {.sequences = mine.sequences, .sequence_length = config.context});
  }
  EXPECT_LE(held.parameters->workspace().peak_bytes(), bound);
  EXPECT_EQ(held.parameters->workspace().blocks(), 0u);
}

void ExpectPiecesGiveTheWhole(const ModelConfig& config, bool keeps, int pieces, MakeCut make_cut) {
  Held whole = Whole(config, DataType::kFloat32);
  const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = config.context}, 5);
  const auto expected_loss = whole.model->TrainMicroBatch(*whole.parameters, batch.view(), 0.5F);
  ASSERT_TRUE(expected_loss.ok());
  const auto ranks_count = static_cast<size_t>(pieces);
  std::vector<Held> held(ranks_count);
  std::vector<double> losses(ranks_count), evaluated(ranks_count);
  collectives::Communicators ranks = collectives::LocalBackend().connect(pieces, absl::Seconds(60));
  collectives::ForEachRank(ranks, [&](collectives::Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.Rank());
    const Cut cut = make_cut(communicator, config.context);
    held[rank] = Part(config, DataType::kFloat32, WholeModel(config), whole, cut.view());
    const Batch piece = PieceOf(batch, cut.positions, config.context / ranks_count);
    MicroBatch view = piece.view();
    view.positions = cut.positions;
    view.keeps_activations = keeps;
    const auto loss = held[rank].model->TrainMicroBatch(*held[rank].parameters, view, 0.5F);
    EXPECT_TRUE(loss.ok()) << loss.status();
    losses[rank] = loss.value_or(0);
    ExpectWithinBounds(config, piece.shape, cut, held[rank], keeps);
    const auto again = held[rank].model->Evaluate(*held[rank].parameters, view);
    EXPECT_TRUE(again.ok()) << again.status();
    evaluated[rank] = again.value_or(0);
  });
  double loss = 0, sum = 0;
  Gradients expected, got;
  AddGradients(whole, &expected);
  for (size_t rank = 0; rank < ranks_count; ++rank) {
    loss += losses[rank];
    sum += evaluated[rank];
    AddGradients(held[rank], &got);
  }
  EXPECT_NEAR(loss, *expected_loss, 1e-5 * *expected_loss);
  EXPECT_NEAR(sum, *expected_loss, 1e-5 * *expected_loss);
  ExpectNear(got, expected, 2e-5);
}

TEST(PiecesOfSequences, WithHeadsSwapped_GiveTheLossAndGradientsOfTheWhole) {
  for (const ModelConfig& config :
       {TinyGpt2(), Untied(TinyGpt2()), TinyOpt(), TinyLlama(), TinyMistral(), TinyQwen2(),
        TinyQwen3(), TinyGptNeox(), TinyBert(), WithoutBalance(TinyMixtral())}) {
    for (const bool keeps : {false, true}) ExpectPiecesGiveTheWhole(config, keeps, 3, Swapped);
  }
}

// Four ranks do not divide the heads.
TEST(PiecesOfSequences, InARing_GiveTheLossAndGradientsOfTheWhole) {
  for (ModelConfig config : {TinyGpt2(), Untied(TinyGpt2()), TinyOpt(), TinyLlama(), TinyGptNeox(),
                             WithScaledRotary(TinyQwen3(), RotaryScaling::Kind::kYarn)}) {
    config.context = 24;
    for (const bool keeps : {false, true}) {
      for (const int pieces : {2, 4}) ExpectPiecesGiveTheWhole(config, keeps, pieces, InARing);
    }
  }
}

TEST(PiecesOfSequences, InARing_KeepActivationsWithoutChangingABit) {
  ModelConfig config = TinyLlama();
  config.context = 8;
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    Held whole = Whole(config, type);
    const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 8}, 5);
    std::vector<Gradients> got(2);
    for (const bool keeps : {false, true}) {
      std::vector<Held> held(2);
      collectives::Communicators ranks = collectives::LocalBackend().connect(2, absl::Seconds(60));
      collectives::ForEachRank(ranks, [&](collectives::Communicator& communicator) {
        const auto rank = static_cast<size_t>(communicator.Rank());
        const Cut cut = InARing(communicator, config.context);
        held[rank] = Part(config, type, WholeModel(config), whole, cut.view());
        const Batch piece = PieceOf(batch, cut.positions, 4);
        MicroBatch view = piece.view();
        view.positions = cut.positions;
        view.keeps_activations = keeps;
        EXPECT_TRUE(held[rank].model->TrainMicroBatch(*held[rank].parameters, view, 0.5F).ok());
      });
      for (const Held& one : held) AddGradients(one, &got[keeps ? 1 : 0]);
    }
    ExpectNear(got[1], got[0], 0);
  }
}

Batch SequencesOf(const Batch& batch, size_t first, size_t count) {
  const size_t length = batch.shape.sequence_length;
  const auto begin = static_cast<ptrdiff_t>(first * length);
  const auto end = static_cast<ptrdiff_t>((first + count) * length);
  return {.shape = {.sequences = count, .sequence_length = length},
          .tokens = {batch.tokens.begin() + begin, batch.tokens.begin() + end},
          .targets = {batch.targets.begin() + begin, batch.targets.begin() + end}};
}

// Bounds the memory of an exchange in the backward pass. At tokens, a row has twice the hidden
// width and its weight. At experts there are two such buffers and one of results, for at most all
// choices.
void ExpectRows(const ModelConfig& config, const MicroBatchShape& mine, size_t ranks,
                collectives::CountingMemory& memory) {
  const size_t hidden = config.hidden, there = 2 * hidden + 1, back = hidden + 1;
  const size_t choices = mine.tokens() * config.experts_per_token;
  const size_t peak = memory.TakePeakBytes();
  EXPECT_GE(peak, sizeof(float) * choices * there);
  EXPECT_LE(peak, sizeof(float) * (choices * there + ranks * choices * (2 * there + back)));
  EXPECT_EQ(memory.in_use_bytes(), 0u);
}

// Each rank has its own sequences and two of six experts. The experts' gradients are those of the
// mean over the ranks.
TEST(SpreadExperts, GiveTheLossAndGradientsOfTheWhole) {
  constexpr size_t kRanks = 3;
  ModelConfig config = TinyMixtral();
  config.experts = 6;
  Held whole = Whole(config, DataType::kFloat32);
  const Batch batch = RandomBatch(config, {.sequences = 6, .sequence_length = config.context}, 5);
  const auto expected_loss = whole.model->TrainMicroBatch(*whole.parameters, batch.view(), 0.5F);
  ASSERT_TRUE(expected_loss.ok());
  std::vector<Held> held(kRanks);
  std::vector<double> losses(kRanks), evaluated(kRanks);
  collectives::Communicators ranks = collectives::LocalBackend().connect(kRanks, absl::Seconds(60));
  collectives::ForEachRank(ranks, [&](collectives::Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.Rank());
    ModelPart part = WholeModel(config);
    part.first_expert = 2 * rank;
    part.experts = 2;
    collectives::CountingMemory memory;
    held[rank] = Part(config, DataType::kFloat32, part, whole, {.memory = &memory}, &communicator);
    const Batch mine = SequencesOf(batch, 2 * rank, 2);
    const auto loss = held[rank].model->TrainMicroBatch(*held[rank].parameters, mine.view(), 0.5F);
    EXPECT_TRUE(loss.ok()) << loss.status();
    ExpectRows(config, mine.shape, kRanks, memory);
    losses[rank] = loss.value_or(0);
    const auto again = held[rank].model->Evaluate(*held[rank].parameters, mine.view());
    EXPECT_TRUE(again.ok()) << again.status();
    evaluated[rank] = again.value_or(0);
  });
  Gradients expected, got;
  AddGradients(whole, &expected);
  for (const Held& one : held) AddGradients(one, &got);
  for (auto& [name, gradient] : got) {
    if (name.find(".experts.") == std::string::npos) continue;
    for (double& value : gradient) value *= kRanks;
  }
  EXPECT_NEAR(losses[0] + losses[1] + losses[2], *expected_loss, 1e-5 * *expected_loss);
  EXPECT_EQ(evaluated, losses);
  ExpectNear(got, expected, 2e-5);
}

TEST(SpreadExperts, RefusedTheirRowsOnOneRank_SaySoThereAndEndTheOthers) {
  constexpr size_t kRanks = 2;
  ModelConfig config = TinyMixtral();
  config.experts = 4;
  Held whole = Whole(config, DataType::kFloat32);
  const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = config.context}, 5);
  for (const int refused : {1, 4, 9}) {
    collectives::Communicators ranks =
        collectives::LocalBackend().connect(kRanks, absl::Seconds(60));
    collectives::ForEachRank(ranks, [&](collectives::Communicator& communicator) {
      const auto rank = static_cast<size_t>(communicator.Rank());
      ModelPart part = WholeModel(config);
      part.first_expert = 2 * rank;
      part.experts = 2;
      collectives::CountingMemory memory(rank == 0 ? refused : 0);
      Held held = Part(config, DataType::kFloat32, part, whole, {.memory = &memory}, &communicator);
      const absl::Status status =
          held.model->TrainMicroBatch(*held.parameters, batch.view(), 0.5F).status();
      EXPECT_EQ(status.code(),
                rank == 0 ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kAborted)
          << status;
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rows of experts"));
      EXPECT_EQ(memory.in_use_bytes(), 0u);
      EXPECT_EQ(held.parameters->workspace().blocks(), 0u);
    });
  }
}

}  // namespace
}  // namespace geminid::trainer
