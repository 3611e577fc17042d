"""Atomic writes, locks, digests, and careful reading of files that others wrote."""

from pate._lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._files.os_errors import (
        explain_os_error as explain_os_error,
        explain_shortage as explain_shortage,
    )
    from pate._files.reading import (
        Blocks as Blocks,
        Json as Json,
        Stream as Stream,
        code_version as code_version,
        digest as digest,
        distinct_keys as distinct_keys,
        read_array as read_array,
        read_arrays as read_arrays,
        read_json as read_json,
        read_yaml as read_yaml,
    )
    from pate._files.writing import (
        FINISH as FINISH,
        atomic_folder as atomic_folder,
        atomic_write as atomic_write,
        cell as cell,
        draft_of as draft_of,
        gigabytes as gigabytes,
        lease as lease,
        lock_run as lock_run,
        locked as locked,
        locked_output as locked_output,
        make_folder as make_folder,
        make_once as make_once,
        output_errors as output_errors,
        release_locks as release_locks,
        remove_abandoned as remove_abandoned,
        remove_drafts as remove_drafts,
        require_disk as require_disk,
        require_place as require_place,
        sync_folder as sync_folder,
        write_arrays as write_arrays,
        write_json as write_json,
        write_once as write_once,
        write_text as write_text,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
