// One program that is etcdctl and etcdutl, chosen by the name it is called by: to take a snapshot of a running etcd, to
// compact it, and to restore a snapshot.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcdctl":
		ctlv3.MustStart()
	case "etcdutl":
		root := &cobra.Command{Use: "etcdutl", SilenceUsage: true}
		root.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "how to print results")
		root.AddCommand(etcdutl.NewSnapshotCommand())
		if err := root.Execute(); err != nil {
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "called as %q; must be etcdctl or etcdutl\n", name)
		os.Exit(2)
	}
}
