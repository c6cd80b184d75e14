// The hyperparameters of all optimizers. Public options, the kernels' options, the C API's struct
// and the trainer's flags have a field of the same name for each that an optimizer has. Only Muon's
// rate is an enumeration of its own in each of them.
#ifndef GEMINID_CLIENT_ZERO_OPTIONS_HYPERPARAMETERS_H_
#define GEMINID_CLIENT_ZERO_OPTIONS_HYPERPARAMETERS_H_

// Expands USE(name) for each name. A use asks whether an optimizer has it:
// if constexpr (requires { options.name; }).
#define GEMINID_HYPERPARAMETERS(USE) \
  USE(beta1)                         \
  USE(beta2)                         \
  USE(beta3)                         \
  USE(momentum)                      \
  USE(dampening)                     \
  USE(epsilon)                       \
  USE(epsilon1)                      \
  USE(epsilon2)                      \
  USE(weight_decay)                  \
  USE(rate_decay)                    \
  USE(clip_threshold)                \
  USE(decay_exponent)                \
  USE(trust_coefficient)             \
  USE(trust_limit)                   \
  USE(max_grad_norm)                 \
  USE(nesterov)                      \
  USE(decoupled)                     \
  USE(bias_correction)               \
  USE(grad_averaging)                \
  USE(always_adapt)                  \
  USE(decay_after_momentum)          \
  USE(relative_step)                 \
  USE(warmup_init)                   \
  USE(scale_parameter)

#endif  // GEMINID_CLIENT_ZERO_OPTIONS_HYPERPARAMETERS_H_
