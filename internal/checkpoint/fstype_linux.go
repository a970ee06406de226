package checkpoint

import "syscall"

// networkFileSystem names the file system of dir if it is one that is refused, and returns ""
// otherwise.
func networkFileSystem(dir string) (string, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "", err
	}
	return refusedName(uint32(st.Type)), nil
}

// refusedName names a file system that is refused, from its type as statfs tells it.
//
// Refused are file systems that another machine serves or shares. On those a flock may exclude
// only processes of this machine, a rename may be answered and lost, and an fsync may end in a
// cache on the other side. FUSE and 9p can be anything, a bucket included, and are refused for
// that.
func refusedName(magic uint32) string {
	switch magic {
	case 0x6969:
		return "nfs"
	case 0x517b, 0xff534d42, 0xfe534d42:
		return "smb"
	case 0x5346414f, 0x6b414653:
		return "afs"
	case 0x00c36400:
		return "ceph"
	case 0x0bd00bd0:
		return "lustre"
	case 0x01161970:
		return "gfs2"
	case 0x7461636f:
		return "ocfs2"
	case 0x01021997:
		return "9p"
	case 0x65735546:
		return "fuse"
	}
	return ""
}
