#include "tests/training/models/reference_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace geminid::trainer {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class Reference {
 public:
  Reference(const ModelConfig& config, const NamedTensors& parameters, const Factor& factor = {})
      : c_(config), p_(parameters), factor_(factor) {}

  // `first_token`: the number of the sequence's first token in the batch, for the factors. The
  // layers' balance losses are added to `balance`.
  Rows Logits(const std::vector<int32_t>& tokens, size_t first_token = 0,
              double* balance = nullptr) const {
    const bool gpt2 = c_.family == Family::kGpt2, opt = c_.family == Family::kOpt;
    const bool neox = c_.family == Family::kGptNeox;
    if (c_.family == Family::kBert) return BertLogits(tokens, first_token);
    if (c_.family == Family::kVit) return VitLogits(tokens, first_token);
    const std::string table = gpt2   ? "transformer.wte.weight"
                              : opt  ? "model.decoder.embed_tokens.weight"
                              : neox ? "gpt_neox.embed_in.weight"
                                     : "model.embed_tokens.weight";
    Rows x(tokens.size(), Row(c_.hidden));
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (size_t h = 0; h < c_.hidden; ++h) {
        const size_t row = static_cast<size_t>(tokens[t]) * c_.hidden;
        x[t][h] = At(table)[row + h];
        if (gpt2) x[t][h] += At("transformer.wpe.weight")[t * c_.hidden + h];
        if (opt) x[t][h] += At("model.decoder.embed_positions.weight")[(t + 2) * c_.hidden + h];
      }
    }
    x = Factored(x, 0, first_token);
    for (size_t layer = 0; layer < c_.layers; ++layer) {
      const std::string prefix = (gpt2   ? "transformer.h."
                                  : opt  ? "model.decoder.layers."
                                  : neox ? "gpt_neox.layers."
                                         : "model.layers.") +
                                 std::to_string(layer) + ".";
      const Rows input = x;
      const Rows attention = gpt2   ? Gpt2Attention(prefix, x)
                             : opt  ? OptAttention(prefix, x)
                             : neox ? GptNeoxAttention(prefix, x)
                                    : LlamaAttention(prefix, x);
      Add(&x, Factored(attention, 1 + 2 * layer, first_token));
      const Rows mlp = gpt2   ? Gpt2Mlp(prefix, x)
                       : opt  ? OptMlp(prefix, x)
                       : neox ? GptNeoxMlp(prefix, c_.parallel() ? input : x)
                       : c_.family == Family::kMixtral ? MixtralMlp(prefix, x, balance)
                                                       : LlamaMlp(prefix, x);
      Add(&x, Factored(mlp, 2 + 2 * layer, first_token));
    }
    const Rows n = gpt2   ? LayerNorm("transformer.ln_f", x)
                   : opt  ? LayerNorm("model.decoder.final_layer_norm", x)
                   : neox ? LayerNorm("gpt_neox.final_layer_norm", x)
                          : RmsNorm("model.norm", x);
    const std::string head = neox ? "embed_out.weight" : "lm_head.weight";
    const bool tied = p_.count(head) == 0;
    const Row& output = At(tied ? table : head);
    Rows logits(n.size(), Row(c_.vocabulary, 0.0));
    for (size_t t = 0; t < n.size(); ++t) {
      for (size_t v = 0; v < c_.vocabulary; ++v) {
        for (size_t h = 0; h < c_.hidden; ++h) logits[t][v] += n[t][h] * output[v * c_.hidden + h];
      }
    }
    return logits;
  }

  double Loss(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets,
              size_t first_token, bool with_balance) const {
    double loss = 0, balance = 0;
    const Rows logits = Logits(tokens, first_token, &balance);
    if (with_balance) {
      loss += c_.balance_loss * static_cast<double>(tokens.size()) * balance /
              static_cast<double>(c_.layers);
    }
    for (size_t t = 0; t < logits.size(); ++t) {
      if (targets[t] < 0) continue;  // this token was not masked
      const double top = *std::max_element(logits[t].begin(), logits[t].end());
      double sum = 0;
      for (const double logit : logits[t]) sum += std::exp(logit - top);
      loss += top + std::log(sum) - logits[t][static_cast<size_t>(targets[t])];
    }
    return loss;
  }

 private:
  const Row& At(const std::string& name) const { return p_.at(name); }

  // Section 3 and appendix A of the paper. Norms follow the sublayers.
  Rows BertLogits(const std::vector<int32_t>& tokens, size_t first_token) const {
    const std::string embeddings = "bert.embeddings.";
    const std::string table = embeddings + "word_embeddings.weight";
    Rows x(tokens.size(), Row(c_.hidden));
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (size_t h = 0; h < c_.hidden; ++h) {
        x[t][h] = At(table)[static_cast<size_t>(tokens[t]) * c_.hidden + h] +
                  At(embeddings + "position_embeddings.weight")[t * c_.hidden + h] +
                  At(embeddings + "token_type_embeddings.weight")[h];
      }
    }
    x = Factored(LayerNorm(embeddings + "LayerNorm", x), 0, first_token);
    for (size_t layer = 0; layer < c_.layers; ++layer) {
      const std::string prefix = "bert.encoder.layer." + std::to_string(layer) + ".";
      const std::string self = prefix + "attention.self.";
      const Rows attended =
          Attend(Linear(self + "query", x, c_.hidden), Linear(self + "key", x, c_.hidden),
                 Linear(self + "value", x, c_.hidden), /*sees_all=*/true);
      const Rows added = Linear(prefix + "attention.output.dense", attended, c_.hidden);
      Add(&x, Factored(added, 1 + 2 * layer, first_token));
      x = LayerNorm(prefix + "attention.output.LayerNorm", x);
      const Rows wide = Gelu(Linear(prefix + "intermediate.dense", x, c_.intermediate));
      const Rows mlp = Linear(prefix + "output.dense", wide, c_.hidden);
      Add(&x, Factored(mlp, 2 + 2 * layer, first_token));
      x = LayerNorm(prefix + "output.LayerNorm", x);
    }
    const std::string head = "cls.predictions.";
    x = LayerNorm(head + "transform.LayerNorm",
                  Gelu(Linear(head + "transform.dense", x, c_.hidden)));
    const Row& output = At(p_.count("lm_head.weight") > 0 ? "lm_head.weight" : table);
    Rows logits(x.size(), At(head + "bias"));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t v = 0; v < c_.vocabulary; ++v) {
        for (size_t h = 0; h < c_.hidden; ++h) logits[t][v] += x[t][h] * output[v * c_.hidden + h];
      }
    }
    return logits;
  }

  // Section 3.1 of the paper. The patches are projected by a convolution whose kernels do not
  // overlap.
  Rows VitLogits(const std::vector<int32_t>& tokens, size_t first_token) const {
    const std::string embeddings = "vit.embeddings.";
    const size_t elements = c_.image->patch_elements(), patches = tokens.size() - 1;
    const Row& pixels = At(kPatches);
    const Row& kernel = At(embeddings + "patch_embeddings.projection.weight");
    Rows x(tokens.size(), At(embeddings + "cls_token"));
    for (size_t p = 0; p < patches; ++p) {
      const size_t first = (static_cast<size_t>(tokens[0]) * patches + p) * elements;
      x[p + 1] = At(embeddings + "patch_embeddings.projection.bias");
      for (size_t h = 0; h < c_.hidden; ++h) {
        for (size_t e = 0; e < elements; ++e) {
          x[p + 1][h] += pixels[first + e] * kernel[h * elements + e];
        }
      }
    }
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t h = 0; h < c_.hidden; ++h) {
        x[t][h] += At(embeddings + "position_embeddings")[t * c_.hidden + h];
      }
    }
    x = Factored(x, 0, first_token);
    for (size_t layer = 0; layer < c_.layers; ++layer) {
      const std::string prefix = "vit.encoder.layer." + std::to_string(layer) + ".";
      const std::string self = prefix + "attention.attention.";
      Rows n = LayerNorm(prefix + "layernorm_before", x);
      const Rows attended =
          Attend(Linear(self + "query", n, c_.hidden), Linear(self + "key", n, c_.hidden),
                 Linear(self + "value", n, c_.hidden), /*sees_all=*/true);
      const Rows added = Linear(prefix + "attention.output.dense", attended, c_.hidden);
      Add(&x, Factored(added, 1 + 2 * layer, first_token));
      n = LayerNorm(prefix + "layernorm_after", x);
      const Rows wide = Gelu(Linear(prefix + "intermediate.dense", n, c_.intermediate));
      const Rows mlp = Linear(prefix + "output.dense", wide, c_.hidden);
      Add(&x, Factored(mlp, 2 + 2 * layer, first_token));
    }
    return Linear("classifier", LayerNorm("vit.layernorm", {x[0]}), c_.classes);
  }

  static Rows Gelu(Rows x) {
    for (Row& row : x) {
      for (double& a : row) a *= 0.5 * (1 + std::erf(a / std::numbers::sqrt2));
    }
    return x;
  }

  Rows Factored(Rows x, size_t place, size_t first_token) const {
    for (size_t t = 0; factor_ && t < x.size(); ++t) {
      for (size_t h = 0; h < x[t].size(); ++h) x[t][h] *= factor_(place, first_token + t, h);
    }
    return x;
  }

  static void Add(Rows* x, const Rows& y) {
    for (size_t t = 0; t < y.size(); ++t) {
      for (size_t h = 0; h < y[t].size(); ++h) (*x)[t][h] += y[t][h];
    }
  }

  Rows LayerNorm(const std::string& name, const Rows& x) const {
    Rows y = x;
    for (Row& row : y) {
      double mean = 0, variance = 0;
      for (const double value : row) mean += value / static_cast<double>(row.size());
      for (const double value : row) {
        variance += (value - mean) * (value - mean) / static_cast<double>(row.size());
      }
      for (size_t h = 0; h < row.size(); ++h) {
        row[h] = (row[h] - mean) / std::sqrt(variance + c_.norm_epsilon) * At(name + ".weight")[h] +
                 At(name + ".bias")[h];
      }
    }
    return y;
  }

  Rows RmsNorm(const std::string& name, const Rows& x) const {
    Rows y = x;
    for (Row& row : y) {
      double square = 0;
      for (const double value : row) square += value * value / static_cast<double>(row.size());
      for (size_t h = 0; h < row.size(); ++h) {
        row[h] *= At(name + ".weight")[h] / std::sqrt(square + c_.norm_epsilon);
      }
    }
    return y;
  }

  // y = x W + b with W[in, out].
  Rows Conv1d(const std::string& name, const Rows& x, size_t out) const {
    const Row& w = At(name + ".weight");
    Rows y(x.size(), At(name + ".bias"));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i) {
        for (size_t o = 0; o < out; ++o) y[t][o] += x[t][i] * w[i * out + o];
      }
    }
    return y;
  }

  // Norms each head by itself, with one gain for all heads.
  Rows HeadNorm(const std::string& name, Rows x) const {
    const size_t d = c_.head_dim();
    for (Row& row : x) {
      for (size_t first = 0; first < row.size(); first += d) {
        double square = 0;
        for (size_t i = 0; i < d; ++i) square += row[first + i] * row[first + i];
        const double root = std::sqrt(square / static_cast<double>(d) + c_.norm_epsilon);
        for (size_t i = 0; i < d; ++i) row[first + i] *= At(name + ".weight")[i] / root;
      }
    }
    return x;
  }

  // y = x W^T + b with W[out, in]; b only if it exists.
  Rows Linear(const std::string& name, const Rows& x, size_t out) const {
    const Row& w = At(name + ".weight");
    const auto bias = p_.find(name + ".bias");
    Rows y(x.size(), bias == p_.end() ? Row(out, 0.0) : bias->second);
    for (size_t t = 0; t < x.size(); ++t) {
      const size_t in = x[t].size();
      for (size_t o = 0; o < out; ++o) {
        for (size_t i = 0; i < in; ++i) y[t][o] += x[t][i] * w[o * in + i];
      }
    }
    return y;
  }

  Rows Attend(const Rows& q, const Rows& k, const Rows& v, bool sees_all = false) const {
    const size_t d = c_.head_dim();
    Rows out(q.size(), Row(c_.heads * d, 0.0));
    for (size_t head = 0; head < c_.heads; ++head) {
      const size_t kv = head / (c_.heads / c_.kv_heads);
      for (size_t t = 0; t < q.size(); ++t) {
        const size_t seen = sees_all ? q.size() : t + 1;
        Row weights(seen, 0.0);
        double sum = 0;
        for (size_t s = 0; s < seen; ++s) {
          if (c_.window > 0 && t - s >= c_.window) continue;
          double score = 0;
          for (size_t i = 0; i < d; ++i) score += q[t][head * d + i] * k[s][kv * d + i];
          weights[s] = std::exp(score / std::sqrt(static_cast<double>(d)));
          sum += weights[s];
        }
        for (size_t s = 0; s < seen; ++s) {
          for (size_t i = 0; i < d; ++i) {
            out[t][head * d + i] += weights[s] / sum * v[s][kv * d + i];
          }
        }
      }
    }
    return out;
  }

  // The angle of a pair of a head's elements between consecutive positions. How often the pair
  // turns in the original positions decides how much of the angle stays unscaled.
  double Angle(size_t pair) const {
    using Kind = RotaryScaling::Kind;
    const RotaryScaling& s = c_.rotary_scaling;
    const auto width = static_cast<double>(Turned());
    const double angle = std::pow(c_.rotary_theta, -2.0 * static_cast<double>(pair) / width);
    const auto positions = static_cast<double>(s.original_positions);
    const double turn = 2 * std::numbers::pi;
    double left = s.kind == Kind::kNone ? 1 : 0;
    if (s.kind == Kind::kLlama3) {
      const double turns = positions * angle / turn;
      left = std::clamp((turns - s.slow_turns) / (s.fast_turns - s.slow_turns), 0.0, 1.0);
    }
    if (s.kind == Kind::kYarn) {
      const auto pair_of = [&](double turns) {
        return width / 2 * std::log(positions / turn / turns) / std::log(c_.rotary_theta);
      };
      const double first = std::floor(pair_of(s.beta_fast)), last = std::ceil(pair_of(s.beta_slow));
      left = std::clamp((last - static_cast<double>(pair)) / (last - first), 0.0, 1.0);
    }
    return left * angle + (1 - left) * angle / s.factor;
  }

  // The number of a head's elements that rotate.
  size_t Turned() const {
    const double share = c_.rotary_share.value_or(c_.family == Family::kGptNeox ? 0.25 : 1);
    return static_cast<size_t>(static_cast<double>(c_.head_dim()) * share);
  }

  void Rotate(Rows* x, size_t heads) const {
    const size_t d = c_.head_dim(), half = Turned() / 2;
    const double length = c_.rotary_scaling.attention_factor;
    for (size_t t = 0; t < x->size(); ++t) {
      for (size_t head = 0; head < heads; ++head) {
        for (size_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(t) * Angle(i);
          double& a = (*x)[t][head * d + i];
          double& b = (*x)[t][head * d + i + half];
          const double rotated = a * std::cos(angle) - b * std::sin(angle);
          b = length * (b * std::cos(angle) + a * std::sin(angle));
          a = length * rotated;
        }
      }
    }
  }

  Rows Gpt2Attention(const std::string& prefix, const Rows& x) const {
    const size_t hidden = c_.hidden;
    const Rows qkv = Conv1d(prefix + "attn.c_attn", LayerNorm(prefix + "ln_1", x), 3 * hidden);
    Rows parts[3];
    for (size_t part = 0; part < 3; ++part) {
      for (const Row& row : qkv) {
        const auto first = row.begin() + static_cast<ptrdiff_t>(part * hidden);
        parts[part].emplace_back(first, first + static_cast<ptrdiff_t>(hidden));
      }
    }
    return Conv1d(prefix + "attn.c_proj", Attend(parts[0], parts[1], parts[2]), hidden);
  }

  Rows OptAttention(const std::string& prefix, const Rows& x) const {
    const Rows n = LayerNorm(prefix + "self_attn_layer_norm", x);
    const Rows q = Linear(prefix + "self_attn.q_proj", n, c_.hidden);
    const Rows k = Linear(prefix + "self_attn.k_proj", n, c_.hidden);
    const Rows v = Linear(prefix + "self_attn.v_proj", n, c_.hidden);
    return Linear(prefix + "self_attn.out_proj", Attend(q, k, v), c_.hidden);
  }

  Rows OptMlp(const std::string& prefix, const Rows& x) const {
    Rows h = Linear(prefix + "fc1", LayerNorm(prefix + "final_layer_norm", x), c_.intermediate);
    for (Row& row : h) {
      for (double& a : row) a = std::max(a, 0.0);
    }
    return Linear(prefix + "fc2", h, c_.hidden);
  }

  // Each head has its query, key and value together.
  Rows GptNeoxAttention(const std::string& prefix, const Rows& x) const {
    const Rows n = LayerNorm(prefix + "input_layernorm", x);
    const Rows fused = Linear(prefix + "attention.query_key_value", n, 3 * c_.hidden);
    Rows parts[3];
    const size_t d = c_.head_dim();
    for (size_t part = 0; part < 3; ++part) {
      for (const Row& row : fused) {
        Row& taken = parts[part].emplace_back();
        for (size_t head = 0; head < c_.heads; ++head) {
          for (size_t i = 0; i < d; ++i) taken.push_back(row[(3 * head + part) * d + i]);
        }
      }
    }
    Rotate(&parts[0], c_.heads);
    Rotate(&parts[1], c_.heads);
    return Linear(prefix + "attention.dense", Attend(parts[0], parts[1], parts[2]), c_.hidden);
  }

  Rows GptNeoxMlp(const std::string& prefix, const Rows& x) const {
    const Rows n = LayerNorm(prefix + "post_attention_layernorm", x);
    Rows h = Linear(prefix + "mlp.dense_h_to_4h", n, c_.intermediate);
    for (Row& row : h) {
      for (double& a : row) {
        const double cubic = std::sqrt(2 / std::numbers::pi) * (a + 0.044715 * a * a * a);
        const double exact = std::erf(a / std::numbers::sqrt2);
        a *= 0.5 * (1 + (c_.activation() == Activation::kGelu ? std::tanh(cubic) : exact));
      }
    }
    return Linear(prefix + "mlp.dense_4h_to_h", h, c_.hidden);
  }

  Rows LlamaAttention(const std::string& prefix, const Rows& x) const {
    const Rows n = RmsNorm(prefix + "input_layernorm", x);
    const size_t width = c_.heads * c_.head_dim(), kv_width = c_.kv_heads * c_.head_dim();
    Rows q = Linear(prefix + "self_attn.q_proj", n, width);
    Rows k = Linear(prefix + "self_attn.k_proj", n, kv_width);
    if (c_.family == Family::kQwen3) {
      q = HeadNorm(prefix + "self_attn.q_norm", q);
      k = HeadNorm(prefix + "self_attn.k_norm", k);
    }
    Rotate(&q, c_.heads);
    Rotate(&k, c_.kv_heads);
    const Rows v = Linear(prefix + "self_attn.v_proj", n, kv_width);
    return Linear(prefix + "self_attn.o_proj", Attend(q, k, v), c_.hidden);
  }

  Rows Gpt2Mlp(const std::string& prefix, const Rows& x) const {
    Rows h = Conv1d(prefix + "mlp.c_fc", LayerNorm(prefix + "ln_2", x), c_.intermediate);
    for (Row& row : h) {
      for (double& a : row) {
        a = 0.5 * a * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (a + 0.044715 * a * a * a)));
      }
    }
    return Conv1d(prefix + "mlp.c_proj", h, c_.hidden);
  }

  Rows LlamaMlp(const std::string& prefix, const Rows& x) const {
    const Rows n = RmsNorm(prefix + "post_attention_layernorm", x);
    Rows gate = Linear(prefix + "mlp.gate_proj", n, c_.intermediate);
    const Rows up = Linear(prefix + "mlp.up_proj", n, c_.intermediate);
    for (size_t t = 0; t < gate.size(); ++t) {
      for (size_t i = 0; i < gate[t].size(); ++i) {
        gate[t][i] *= up[t][i] / (1 + std::exp(-gate[t][i]));
      }
    }
    return Linear(prefix + "mlp.down_proj", gate, c_.hidden);
  }

  // A choice is dropped if the expert's capacity is already filled by earlier choices of the
  // sequence. Earlier are better-ranked choices of any token, and equally ranked ones of earlier
  // tokens.
  void DropBeyondCapacity(const Rows& z, Rows* weights) const {
    const auto rank = [&](size_t t, size_t e) {
      return std::count_if(z[t].begin(), z[t].end(), [&](double other) { return other > z[t][e]; });
    };
    const double share = static_cast<double>(c_.experts_per_token) * static_cast<double>(z.size()) /
                         static_cast<double>(c_.experts);
    const double most = std::ceil(c_.expert_capacity * share);
    const Rows chosen = *weights;
    for (size_t e = 0; e < c_.experts; ++e) {
      for (size_t t = 0; t < z.size(); ++t) {
        double before = 0;
        for (size_t other = 0; other < z.size(); ++other) {
          if (chosen[other][e] == 0) continue;
          const bool first = rank(other, e) < rank(t, e);
          if (first || (other < t && rank(other, e) == rank(t, e))) before += 1;
        }
        if (before >= most) (*weights)[t][e] = 0;
      }
    }
  }

  // Computes every expert for every token. Experts that the token did not choose have weight 0.
  Rows MixtralMlp(const std::string& prefix, const Rows& x, double* balance) const {
    const Rows n = RmsNorm(prefix + "post_attention_layernorm", x);
    const Rows z = Linear(prefix + "block_sparse_moe.gate", n, c_.experts);
    Rows weights(n.size(), Row(c_.experts, 0.0)), out(n.size(), Row(c_.hidden, 0.0));
    Row load(c_.experts, 0.0), probability(c_.experts, 0.0);
    for (size_t t = 0; t < n.size(); ++t) {
      double all = 0, chosen = 0;
      for (size_t e = 0; e < c_.experts; ++e) {
        all += std::exp(z[t][e]);
        // An expert is chosen if fewer than experts_per_token experts have larger logits.
        const auto before =
            std::count_if(z[t].begin(), z[t].end(), [&](double other) { return other > z[t][e]; });
        if (static_cast<size_t>(before) >= c_.experts_per_token) continue;
        weights[t][e] = std::exp(z[t][e]);
        chosen += weights[t][e];
        load[e] += 1;
      }
      for (size_t e = 0; e < c_.experts; ++e) {
        weights[t][e] /= chosen;
        probability[e] += std::exp(z[t][e]) / all;
      }
    }
    if (c_.expert_capacity > 0) DropBeyondCapacity(z, &weights);
    for (size_t e = 0; e < c_.experts; ++e) {
      const std::string expert = prefix + "block_sparse_moe.experts." + std::to_string(e) + ".";
      Rows gate = Linear(expert + "w1", n, c_.intermediate);
      const Rows up = Linear(expert + "w3", n, c_.intermediate);
      for (size_t t = 0; t < gate.size(); ++t) {
        for (size_t i = 0; i < gate[t].size(); ++i) {
          gate[t][i] *= up[t][i] / (1 + std::exp(-gate[t][i]));
        }
      }
      Rows y = Linear(expert + "w2", gate, c_.hidden);
      for (size_t t = 0; t < y.size(); ++t) {
        for (double& value : y[t]) value *= weights[t][e];
      }
      Add(&out, y);
    }
    const auto tokens = static_cast<double>(n.size());
    for (size_t e = 0; balance != nullptr && e < c_.experts; ++e) {
      *balance += static_cast<double>(c_.experts) * (load[e] / tokens) * (probability[e] / tokens);
    }
    return out;
  }

  const ModelConfig& c_;
  const NamedTensors& p_;
  const Factor factor_;
};

double LossOf(const Reference& reference, const std::vector<std::vector<int32_t>>& sequences,
              const std::vector<std::vector<int32_t>>& targets, bool with_balance) {
  double loss = 0;
  size_t first_token = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    loss += reference.Loss(sequences[i], targets[i], first_token, with_balance);
    first_token += sequences[i].size();
  }
  return loss;
}

}  // namespace

double ReferenceLoss(const ModelConfig& config, const NamedTensors& parameters,
                     const std::vector<std::vector<int32_t>>& sequences,
                     const std::vector<std::vector<int32_t>>& targets, const Factor& factor) {
  return LossOf(Reference(config, parameters, factor), sequences, targets, false);
}

double ReferenceObjective(const ModelConfig& config, const NamedTensors& parameters,
                          const std::vector<std::vector<int32_t>>& sequences,
                          const std::vector<std::vector<int32_t>>& targets, const Factor& factor) {
  return LossOf(Reference(config, parameters, factor), sequences, targets, true);
}

std::vector<std::vector<double>> ReferenceLogits(const ModelConfig& config,
                                                 const NamedTensors& parameters,
                                                 const std::vector<int32_t>& sequence) {
  return Reference(config, parameters).Logits(sequence);
}

}  // namespace geminid::trainer
