"""The commands: one thin file each. Nothing imports them."""

from t2t_ext.bin import _process

_process.prepare()
