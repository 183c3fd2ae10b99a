"""State files of earlier versions."""

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from bicore.bilevel import Relative
from bicore.files import fingerprint
from bicore.methods import GradientMatching, KCenter, Reconstruction, Uniform, VDesign
from bicore.methods.registry import greedy_selector
from bicore.runtime.context import Context
from bicore.streaming import (
    ClassBalancedReservoir,
    GradientSampling,
    JointReplay,
    MergeReduce,
    MomentMemory,
    ReplayMemory,
)
from tests.helpers import refuses

# Eight rows 0 … 7 with labels 0, 1, 0, 1 …, as files of those versions held them.
RESERVOIR = (
    "c-qxh&ubGw6y8|d#@K_0qSw`fQAkUYCfTG2mKNJXQG(EeloB?(n`ALf!fw(wl!EA=;17E7<iTUFg8zm`{|NsBebao;z8"
    "!XLr7F1LV`gXGoB6(Z^JcR3&8e#k#^kweymU@Je#etG=8cYLyNkWSIAz>0zRpanxP1L&>v8>A%Gfgwv#u99L3Y{9KG-V"
    "dt!&QBw)(*^uzQVu;CiZO-R_1SwTB&h;L-cN`#JN-yu_0^Bo227Ekd6V5OxVRVTitEf=MV4a;U5JCSe3$1rPqxN7dH|U"
    "5pt5t9a-39>KvFF5xNap%`}$9DOm5<l~^f2R_QK4UU1(<O@5=^-zqXYzHVE_$c48=Ch=6V7{zF+U5yIn*9J=LNP}YziN"
    "Ws5p0JE^HzVsF>a1UaFsp*Y}*NI))f33u;cMPZT<TR`=pM&vO%a2N-;4GF@`Pl#_>7Nu7KFppt+1vwH47`fn5>p71&f@"
    "&o+7Vv#o`;B1*O|qfPqcp|dQ;ka~TQ8+x29p`(J*!W?DvSwdS;=&cD(WpJ?2R}lJ2f~zIgsER)JW9a+4Bl5n1z3Pko%I"
    "mG?i5x@s@x=ZLE|6n;;;b2ob0sPF^|PvRPR?utl6Ohu(T-@})?%#N?Zo7G9G?Jrv>&4-iO+dF;^uE*&ANa-kDQ|b|0AF"
    "txfMTmUcKX6agJ_9r{g)#!_h9^j4x6XOD+>`#!Bg*T#RPM!K$>dvuik6Ya;Xb#^UUCP`7X*HnBog0nSJpXo~Uj;>Phrr"
    "sjbf+8v-O>K3^2spJaZrr_jaE<W}6=H@=;9F5-U+vX#V-ZVw;fWvkS6E5S!)~a48YD+n@aJk53jL7rt;iOEjMCHtHymz"
    "IX@$bp;FDmEK|Ib)RN-LvsPS)SFSx$!J?0bH@GyF>-`a_yHG-qX0lfUxmE^C@4O}-ocFF~668Kl&eg{kO=f%@aGkQTdi"
    "a^&%6g6^dbPGzAm7xB6|YebGw-BTs)G1h51;`xQ9KZtWti4pJe;hHf?6Wv8^K6c4OTmpJM+lsoM3NZW4M*P;V8yxQX=J"
    "e^8(hU99XaR1WuD}oEY`g*"
)
MERGE_REDUCE = (
    "c-qZZ&ui2`6wX@f)@=n3A|5=%y{y8vY_h+LV4<LgQdtTWq)5po*(S96!zA0fltM4!$&&{QUcC8F^bZhEJqi93;>EMhxZ"
    "jhPG3i#SVwR6dX5M@A-uq_W%(hmhF3xM?=a%;3(0uz1&y03W^IXeW=nY00?W%T?9ZOOB>f!oo>v2Zg)%FXH8`?o(Q7_z"
    "GuhbfaqF(6qgD9|ioBhCX<;Z<&Cv-)B=vf0-eBZuP)DQG?Jh^@0LtdaG&=&{<x&oF!gt0{dUBD11;$8N)1%}X-aG}q2<"
    "ohZc+rs-AS_d|4eCL%pZ1~l~96oFeVUPUunH-;gpV^VJ1GF}Dr0z)3sVF{#@QwWCvZVys9rzOAo6DPu{2uI5TwaP^9&%"
    "3+yM=l3DZcKYwPCNH!cASEjJQn1-Vmr_%!Hjf=4?Q|#&U6>_%OhHA<J<ZKaCW=hmeg@^4>Uwqog?&61WN=yOpwL+RXn="
    "wsw1LJzEp<+Y(q7cz~Q$QaFp4EjPuVNpfZICfg=Z#k?lID+-4t^wrQ;f=&ZyqOXo`gZ0x~)L%wxV7#7CGkoOFPT;7{?2"
    "tdS2CEpWGyf<i?hm1&_*`Z2mzeDai=o2w2<qDQkpB>CV#s2OV9T6PBUBxit*szISM_0+?f)V4!c*4FY4vCW;5_kn8Osw"
    "u-KQSgr`rj(jfDNC)_k=#OtN7k9^xQOiGM@MyO9tBopS;FPpbj6-za7-M{9)8iroaRcl|!y1m?s|!1i2wI~;cDHgK33O"
    "H!M18>m(O$z?##8Q1}I640q!1FGnAkeMcA=@hZq=~0Fa3*%(hVwI<gwu3P`Z4C4^@ouupLY0ZCX&W{y<~LO>2eNJWR$@"
    "MzN_DY+VXyn>_%pFLE!cZTv>ic&+GN@~XS>3ci@I?>=5k{%ZY*iB=jKv8oaZ0Ee&FGZelHyVtl^ydPO2#nHiyE_rxWuH"
    "g_9HE?79Ay7yTuQ{!mPFOY!#0y?9J(FW((gOj!|=?}Yy=NtYCovOh`6T$rDV{~3~hb|hw){J7-NUn5mZ7EUQ4F&ERy2_"
    "w9Ws+w}s9wATDG0pdvwec2KRpiD<R(UOW8zrg8#YZZ+m`Z0>V@pxhlLV7qHm0{I!UWx|mFXYZy(E6iA_22k<kxqeA<b_"
)
REPLAY = (
    "c-qxgL2DC16rMC~jcJ4)dK6iEiIr5cn@voLU``^GmLT-tNw=HbBqmML?8Y{f7Jov)i+J(kLC}Loe}diwLC@Yiir0erru"
    "$8p9k-GYlyt+#+s(Xh-h1=jo0-abe0G%u&sFyI`m@bncoJ-h)g7yPqum|E*dlv36KDzfbaQK?azDl%vx9Wi@$6oDO-tX"
    "}(oG|s(b8_G=l87kgHEsN@R2)K%X8>|uWof6`o6Z3(GIl<p5y`fuuO0X9YT+=L$C-w#?}ZLK__JJz6?DFQg8<fhri#0U"
    "YF3q++1(tFMQdK4~|D@LdrG_MZW`EoY%m2JAx--w=sVg(gx3uh{sfH?I8xPUnA7P^CH%P>+KTyu+xf&)q@^KRhc78I6O"
    "nY1!=>+SWnf59AO*wg`I8iO0ZGF_f1G0apy1x_n{K1cx~l*UQ~RFD&DR;cGK(ch^l`Q3p9m1qv{Lhe<^w`S&~+(h=?6X"
    "OIZOIV|hpu98((0VwEh6Ig)NcswzWz&q=lopoqD0k`FGvZB&E{Uku47@t&3J=iyTU{DKr;ID0QI_uq@`%~SUFvm$TD&="
    "E2^Z*Fm<v>6#qpDcCBz>7pVkc;JT9J?o_*K!<#G2>{A8pp)DF4|!DgyZl(ziEm%7ATHAr%|i>|0*dH2NQVl{kD+dV7`6"
    ")^h!Pq8&z*=(-Matvyo}}qfPYl*(OJiPCkU%M4#4ti1vt$(I)!&Y?Fs~k5WpTOl?|lb!G8kT4FP+@$mhZ-)}h*(k>UA{"
    "^B;QviKc>YjC7OtRFOwe4|jAyfKflKJy{wTk7QCG*dbJtcd39&oP`FDu)-G;4FkVWtu|TrBx!|0|ha>AeSz%;f^?ZSYL"
    "=0>^>@o_jWYr1sNXb<Aqhb$mFh4iM(c`!!na>SizO`xl>P)^t(ct{CV05zX4*YMo9"
)


def write_state(text: str, folder: Path) -> Path:
    path = folder / "state.npz"
    path.write_bytes(zlib.decompress(base64.b85decode(text)))
    return path


def test_an_old_reservoir_state_continues(tmp_path):
    buffer = ClassBalancedReservoir.load(write_state(RESERVOIR, tmp_path))
    assert buffer.mark == {}
    kept = buffer.snapshot()
    assert kept.ids.tolist() == [0, 1, 3]
    assert kept.weights.tolist() == [4, 2, 2]
    assert kept.extra is None
    whole = ClassBalancedReservoir(3).update(range(8), [0, 1] * 4)
    for one in (buffer, whole):
        one.update([8.0, 9.0], [0, 1])
    assert buffer.snapshot().ids.tolist() == whole.snapshot().ids.tolist()


def test_an_old_merge_reduce_state_continues(tmp_path):
    buffer = MergeReduce.load(write_state(MERGE_REDUCE, tmp_path), KCenter())
    assert buffer.mark == {"batch": 7}
    kept = buffer.snapshot()
    assert kept.ids.tolist() == [6, 0, 7]
    assert kept.weights.tolist() == [3.5, 3.5, 1]
    assert kept.extra is None
    assert buffer.levels == [1]
    assert len(buffer.update([8.0], [0]).snapshot()) == 4


def test_selectors_have_the_fingerprints_of_version_0_2():
    known = {
        greedy_selector("rbf", inner_reg=0.1): "5f5e73388889045b",
        greedy_selector(loss="cross-entropy"): "0200cfe0c5a3f677",
        GradientMatching(weighting="pursuit"): "fff1bca9c44a5c41",
        VDesign(): "e6155915884ecb33",
        Reconstruction(): "ac45d66eaf6efb2d",
    }
    assert [fingerprint(one) for one in known] == list(known.values())


def test_a_replay_memory_is_read(tmp_path):
    memory = ReplayMemory.load(write_state(REPLAY, tmp_path), Uniform())
    assert [len(rows) for rows in memory.tasks] == [2, 2]
    assert all(rows.extra is None for rows in memory.tasks)


def test_keywords_of_version_0_2_mean_the_same_and_memories_are_cloned():
    with pytest.warns(DeprecationWarning, match="feature_map="):
        old = MomentMemory(5, features="rows", prior="stream")
    with pytest.warns(DeprecationWarning, match="sample_weight="):
        old.update(np.eye(6), [0, 1] * 3, weight=np.ones(6))
    with pytest.warns(DeprecationWarning, match="model="):
        old.update(np.eye(6), [0, 1] * 3, context=Context())
    assert (old.feature_map, old.prior, old.seen) == ("rows", "data", 12)
    named = {"feature_map": "rows", "inner_reg": Relative(0.2), "prior": {0: 0.5, 1: 0.5}}
    for memory in (
        MomentMemory(5, **named),
        JointReplay(5, **named),
        MergeReduce(KCenter(), 5, 2),
        ReplayMemory(Uniform(), 5, "learned"),
        GradientSampling(5, 3, "cosine"),
    ):
        again = clone(memory)
        assert again.get_params().keys() == memory.get_params().keys()
        assert again._configuration() == memory._configuration()
        assert memory.set_params(capacity=4).capacity == 4


def test_a_regulariser_is_rho_and_a_number_in_an_old_file_a_share():
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    absolute, share = (MomentMemory(5, "rows", inner_reg=reg) for reg in (0.5, "relative:0.5"))
    outer = absolute.update(x, y).moments.outer()
    assert absolute.ridge(outer) == 0.5
    assert share.ridge(outer) == 0.5 * outer.energy
    state = absolute.state_dict()
    head = json.loads(state["head"])
    head["configuration"] |= {"inner_reg": 0.5, "features": head["configuration"]["feature_map"]}
    head["configuration"] |= {"rule": "auto", "prior": "stream"}
    del head["configuration"]["feature_map"], head["configuration"]["strategy"]
    share.load_state_dict({**state, "head": json.dumps(head)})
    assert share.moments.weight == 40
    refuses("inner_reg", absolute.load_state_dict, {**state, "head": json.dumps(head)})
    joint = JointReplay(5, "rows", "auto", "relative:0.5")
    refuses("of a stream", joint.load_state_dict, {**state, "head": json.dumps(head)})
