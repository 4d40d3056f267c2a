"""Inputs of models: made from their types and shapes, or read from a file."""

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from raddle_tuner.trials import inputs
from raddle_tuner.trials.inputs import InputError, ModelInput


def model_input(name="x", kind="float", shape=(1,)):
    return ModelInput(name=name, type=f"tensor({kind})", shape=shape)


def identity(path, **types):
    """A model that gives each input back: name=(element type, shape)."""
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in types.items()]
    outs = [helper.make_tensor_value_info(f"{one.name}_out", *types[one.name]) for one in infos]
    nodes = [helper.make_node("Identity", [one.name], [f"{one.name}_out"]) for one in infos]
    graph = helper.make_graph(nodes, "identity", infos, outs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def test_a_model_takes_the_inputs_that_were_made_for_it(tmp_path):
    path = identity(
        tmp_path / "model.onnx",
        image=(TensorProto.FLOAT, ["batch", 3, None, 4]),
        half=(TensorProto.FLOAT16, [2]),
        ids=(TensorProto.INT64, [1, "length"]),
        pixels=(TensorProto.UINT8, [8, 8]),
        flag=(TensorProto.BOOL, []),
        text=(TensorProto.STRING, [3, 4]),
    )
    arrays = inputs.made(inputs.read(path))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for name, given_back in zip(arrays, session.run(None, arrays), strict=True):
        np.testing.assert_array_equal(given_back, arrays[name])
    assert arrays["image"].shape == (1, 3, 1, 4)
    assert arrays["flag"].shape == ()


@given(st.sampled_from(["int8", "int32", "int64", "uint8", "uint64"]), st.lists(st.integers(0, 5), max_size=3))
def test_integers_are_small_and_not_negative(kind, shape):
    array = inputs.made([model_input(kind=kind, shape=tuple(shape))])["x"]
    assert array.shape == tuple(shape)
    assert ((array >= 0) & (array <= (255 if kind == "uint8" else 1))).all()


@pytest.mark.parametrize("kind", ["int64", "float"])
@pytest.mark.parametrize("name", ["attention_mask", "input_lengths"])
def test_masks_and_lengths_are_ones(name, kind):
    assert (inputs.made([model_input(name, kind, (2, 3))])[name] == 1).all()


def test_the_same_inputs_are_made_each_time():
    asked = [model_input("a", shape=(4,)), model_input("b", "string", (3,))]
    for first, second in zip(inputs.made(asked).values(), inputs.made(asked).values(), strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_shape_that_is_given_fills_what_the_model_leaves_open():
    asked = model_input("image", shape=("batch", 3, None))
    assert inputs.made([asked], {"image": (2, 3, 9)})["image"].shape == (2, 3, 9)
    assert inputs.made([model_input(shape=None)], {"x": ()})["x"].shape == ()


@pytest.mark.parametrize(
    ("asked", "shapes", "said"),
    [
        (model_input(shape=None), {}, "input x is float of any shape; give --shape x=1,3,224,224 or an .npz file"),
        (
            model_input(kind="bfloat16"),
            {},
            (
                r"input x is bfloat16 \[1\], which can't be generated; supported are .*, "
                r"float, "
            ),
        ),
        (ModelInput(name="x", type="sequence", shape=None), {}, "input x is sequence, which can't be generated"),
        (model_input(shape=("n", 3)), {"x": (1, 4)}, r"input x: \[1, 4\] does not fit float \[n, 3\]"),
        (model_input(), {"y": (1,)}, "no input is named y; the model has x"),
        (model_input(shape=("n",)), {"x": (1 << 40,)}, "input x: .* more than 8 GiB"),
    ],
)
def test_an_input_that_cannot_be_made_is_named(asked, shapes, said):
    with pytest.raises(InputError, match=said):
        inputs.made([asked], shapes)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("x=1,3,224,224", ("x", (1, 3, 224, 224))), ("scale=", ("scale", ())), ("a=b=2", ("a=b", (2,)))],
)
def test_shapes_are_read_from_text(text, parsed):
    assert inputs.parsed_shape(text) == parsed


@pytest.mark.parametrize("text", ["x", "=1", "x=1,,2", "x=-1", "x=one", "x=1x3"])
def test_what_is_no_shape_is_said(text):
    with pytest.raises(InputError, match="is not a shape; write NAME=1,3,224,224"):
        inputs.parsed_shape(text)


def test_arrays_that_are_written_are_read_again(tmp_path):
    asked = [model_input("file", shape=(2, 2)), model_input("words/of", "string", (3,)), model_input("n", "int64", ())]
    arrays = inputs.made(asked)
    inputs.write_npz(tmp_path / "inputs.npz", arrays)
    for name, array in inputs.read_npz(tmp_path / "inputs.npz", asked).items():
        np.testing.assert_array_equal(array, arrays[name])


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({}, r"has no input x \(float \[n, 2\]\); it has none"),
        ({"x": np.zeros((1, 2))}, "input x is float64, the model takes float32"),
        ({"x": np.zeros((1, 3), np.float32)}, r"input x: \[1, 3\] does not fit float \[n, 2\]"),
        ({"x": np.zeros((1, 2), np.float32), "y": np.zeros(1)}, "the model has no input y; it has x"),
    ],
)
def test_a_file_that_does_not_fit_the_model_says_where(tmp_path, arrays, said):
    inputs.write_npz(tmp_path / "inputs.npz", arrays)
    with pytest.raises(InputError, match=said):
        inputs.read_npz(tmp_path / "inputs.npz", [model_input(shape=("n", 2))])


def test_a_file_that_holds_no_arrays_by_name_says_so(tmp_path):
    (tmp_path / "text").write_text("x = 1")
    np.save(tmp_path / "one.npy", np.zeros(1))
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    for name in ("text", "one.npy", "objects.npz"):
        with pytest.raises(InputError, match=rf"{name}: is not an \.npz file of plain arrays"):
            inputs.read_npz(tmp_path / name, [])
    with pytest.raises(InputError, match="No such file"):
        inputs.read_npz(tmp_path / "absent.npz", [])


def test_a_file_that_is_no_model_says_so(tmp_path):
    (tmp_path / "text.onnx").write_text("not a model")
    (tmp_path / "empty.onnx").write_bytes(b"")
    for name in ("text.onnx", "empty.onnx"):
        with pytest.raises(InputError, match=f"{name}: is not an ONNX model"):
            inputs.read(tmp_path / name)
    with pytest.raises(InputError, match=r"absent\.onnx: No such file"):
        inputs.read(tmp_path / "absent.onnx")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "model.pt"
    path.touch()
    return path


def test_inputs_of_a_script_are_floats_of_the_shapes_that_are_said_in_their_order(script):
    arrays = inputs.asked(script, None, {"tokens": (1, 8), "mask": (8,)})
    found = [(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    assert found == [("tokens", "float32", (1, 8)), ("mask", "float32", (8,))]


def test_inputs_of_a_script_are_of_any_type_in_a_file(script, tmp_path):
    given = {"b": np.arange(3), "a": np.ones(2, np.float16)}
    inputs.write_npz(tmp_path / "given.npz", given)
    arrays = inputs.asked(script, tmp_path / "given.npz")
    assert list(arrays) == ["b", "a"]
    assert arrays["b"].dtype == given["b"].dtype


def test_text_for_a_script_is_refused(script, tmp_path):
    inputs.write_npz(tmp_path / "given.npz", {"text": np.array(["a"])})
    with pytest.raises(InputError, match=r"given\.npz: input text is text, which no TorchScript model takes"):
        inputs.asked(script, tmp_path / "given.npz")
