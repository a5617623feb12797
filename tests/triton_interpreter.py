"""Triton's interpreter for checks of kernels: in a process that interprets and does nothing else with Triton."""

from __future__ import annotations

from functools import cache


def mend_the_interpreter():
    """Triton 3.6 makes loop bounds of arrays of one number by int(), which numpy refuses from 2.4 on.

    It also replaces the functions of the language anew in every call of a function of the device: once for each module
    is enough, and takes half the time.
    """
    from triton.runtime import interpreter

    patch_tensor, patch_lang, patched = interpreter._patch_lang_tensor, interpreter._patch_lang, set()

    def patch_and_mend(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def patch_once(function):
        if id(function.__globals__) not in patched:
            patched.add(id(function.__globals__))
            patch_lang(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang_tensor, interpreter._patch_lang = patch_and_mend, patch_once
    describe_types_once()


def describe_types_once():
    """Each value that is interpreted has a type and a shape, and these have names in words: half of the time that is
    left goes into making them. A type of a tuple is made when it is asked for; what a block has is kept."""
    from triton.language import core
    from triton.runtime import interpreter

    make_tuple, make_block, make_tensor = core.tuple.__init__, core.block_type.__init__, core.tensor.__init__
    blocks, shapes = {}, {}
    stored_as, of_scalar = interpreter._get_np_dtype, cache(interpreter._get_np_dtype)

    def tuple_of(self, args, type=None):
        if type is None:
            self.values = list(args)
        else:
            make_tuple(self, args, type)

    def type_of(self):
        known = self.__dict__
        if "made_type" not in known:
            known["made_type"] = core._type_for_tuple_values(self.values)
        return known["made_type"]

    def set_type(self, type):
        self.__dict__["made_type"] = type

    def block_of(self, element_ty, shape):
        key = (id(element_ty), *core._unwrap_shape(shape))
        if key not in blocks:
            make_block(self, element_ty, shape)
            blocks[key] = dict(self.__dict__)  # it holds the element's type, so that no other has its id
        self.__dict__.update(blocks[key])

    def tensor_of(self, handle, type):
        key = tuple(type.shape) if type.is_block() else ()
        if key not in shapes:
            make_tensor(self, handle, type)
            shapes[key] = self.shape, self.numel
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = shapes[key]

    core.tuple.__init__, core.tuple.type = tuple_of, property(type_of, set_type)
    core.block_type.__init__, core.tensor.__init__ = block_of, tensor_of
    interpreter._get_np_dtype = lambda kind: (stored_as if kind.scalar.is_ptr() else of_scalar)(kind.scalar)
