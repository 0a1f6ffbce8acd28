package weir
import ("testing";"log/slog")
func BenchmarkZZ(b *testing.B){
 for _, w := range []string{"off","on","noexclude"} { b.Run(w, func(b *testing.B){
  cfg := chainConfig(1e9); cfg.Windows.Enabled = w!="off"; cfg.Windows.PerAddress, cfg.Windows.PerSubject= 1e9,1e9
  if w=="noexclude" {cfg.Windows.Exclude=nil}
  cfg.Tiers.PerAccount=TierConfig{}
  l,err := New(cfg, WithLogger(slog.New(slog.DiscardHandler))); if err!=nil {b.Fatal(err)}
  runChain(b, l.Handler(bareHandler), 10000, 200)
 })}
}
