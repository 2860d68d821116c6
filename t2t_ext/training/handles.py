"""Raw reads and writes of the component of a variable that belongs to the current replica.

Every value that the training step writes is computed from all-reduced quantities, so each replica can write its
own component without a merge, and all components stay bitwise equal. This matters inside ``tf.cond``, where merge
calls are not allowed.
"""

import tensorflow as tf


def handle(variable: tf.Variable) -> tf.Tensor:
    """Returns the resource handle of a variable's component on the current replica."""
    return variable.handle


def read(variable: tf.Variable) -> tf.Tensor:
    """Reads the current replica's component."""
    value = tf.raw_ops.ReadVariableOp(resource=handle(variable), dtype=variable.dtype)
    value.set_shape(variable.shape)
    return value


def assign(variable: tf.Variable, value: tf.Tensor) -> None:
    """Writes the current replica's component."""
    tf.raw_ops.AssignVariableOp(resource=handle(variable), value=tf.cast(value, variable.dtype))


def assign_add(variable: tf.Variable, value: tf.Tensor) -> None:
    """Adds to the current replica's component."""
    tf.raw_ops.AssignAddVariableOp(resource=handle(variable), value=tf.cast(value, variable.dtype))


def assign_sub(variable: tf.Variable, value: tf.Tensor) -> None:
    """Subtracts from the current replica's component."""
    tf.raw_ops.AssignSubVariableOp(resource=handle(variable), value=tf.cast(value, variable.dtype))


def new_variable(value: tf.Tensor | float, dtype: tf.DType, name: str) -> tf.Variable:
    """Creates an untrained variable that holds the same value on every replica."""
    return tf.Variable(
        tf.cast(value, dtype),
        trainable=False,
        name=name,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
